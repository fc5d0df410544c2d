#include "levin/strategy/forecast/automatic.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "levin/base/check.h"

namespace levin::forecast {
namespace {

constexpr double kBytesPerGigabyte = 1e9;
constexpr int64_t kSlotsOfAdam = 2;

/// Returns the number of tensors of a parameter's size in an optimizer's state.
struct Slots {
  const PlannedParameter& parameter;

  double operator()(const SgdOptions& o) const { return o.momentum != 0.0 ? 1 : 0; }
  double operator()(const AdamOptions& o) const { return kSlotsOfAdam + (o.amsgrad ? 1 : 0); }
  double operator()(const AdamWOptions& o) const { return kSlotsOfAdam + (o.amsgrad ? 1 : 0); }
  double operator()(const NAdamOptions&) const { return kSlotsOfAdam; }
  double operator()(const RAdamOptions&) const { return kSlotsOfAdam; }
  double operator()(const LionOptions&) const { return 1; }
  double operator()(const MuonOptions&) const { return 1; }
  /// Means of rows and of columns, for a parameter of at least two dims.
  double operator()(const AdafactorOptions& o) const {
    const std::vector<int64_t>& sizes = parameter.sizes;
    const double update = o.beta1 ? 1 : 0;
    if (sizes.size() < 2 || parameter.numel() == 0) return update + 1;
    const auto rows = static_cast<double>(sizes[sizes.size() - 2]);
    const auto columns = static_cast<double>(sizes.back());
    return update + 1 / rows + 1 / columns;
  }
  /// Adagrad keeps one; those that are not known count as Adam.
  double operator()(const TorchOptimizerOptions& o) const {
    const bool is_adagrad = o.class_name == "adagrad" || o.class_name.ends_with("Adagrad");
    return is_adagrad ? 1 : kSlotsOfAdam;
  }
};

bool is_half(const PlannedParameter& parameter) {
  return c10::isReducedFloatingType(parameter.type);
}

std::string gigabytes(int64_t bytes) {
  return fmt::format("{:.3g} GB", static_cast<double>(bytes) / kBytesPerGigabyte);
}

std::string kinds_of(const Forecast& forecast) {
  std::string text;
  for (size_t kind = 0; kind < forecast.memory.size(); ++kind) {
    if (forecast.memory[kind] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(static_cast<Kind>(kind)),
                        gigabytes(forecast.memory[kind]));
  }
  return text;
}

std::string title_of(const Setting& setting) {
  return fmt::format("{} on {}", setting.name(), to_text(setting.mesh));
}

std::string reason_of(const std::vector<Forecast>& forecasts, const AutomaticChoice& choice,
                      double memory_bytes) {
  const Forecast& taken = forecasts[choice.chosen];
  const std::string there =
      fmt::format("{:.3g} GB less {:.0f} % for activations, which are not known before a step",
                  memory_bytes / kBytesPerGigabyte, 100 * kPartForActivations);
  if (!choice.fits) {
    return fmt::format(
        "{}: no strategy fits the memory of a rank ({}); this one needs least, {} ({}). Start more "
        "ranks, or keep state in a file with --offload optimizer or parameters",
        title_of(taken.setting), there, gigabytes(taken.memory_bytes()), kinds_of(taken));
  }
  std::string text = fmt::format("{}: a rank needs {} ({}) of {}", title_of(taken.setting),
                                 gigabytes(taken.memory_bytes()), kinds_of(taken), there);
  if (choice.chosen > 0) {
    const Forecast& first = forecasts.front();
    text +=
        fmt::format("; {} would need {}", title_of(first.setting), gigabytes(first.memory_bytes()));
  }
  return text;
}

}  // namespace

std::vector<Setting> automatic_settings(int64_t ranks) {
  const Mesh all{.replicate = ranks};
  if (ranks == 1) return {setting_of("single", all)};
  std::vector<Setting> settings;
  for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp", "zero3"}) {
    settings.push_back(setting_of(strategy, all));
  }
  return settings;
}

std::vector<int64_t> state_bytes_of(const Description& description,
                                    const std::vector<OptimizerConfig>& configs,
                                    bool master_weights) {
  std::vector<int64_t> bytes;
  for (const PlannedParameter& parameter : description.parameters) {
    int64_t& most = bytes.emplace_back(0);
    if (!parameter.trains) continue;
    const auto count = static_cast<double>(parameter.numel());
    const auto note = [&](double slots, bool masters) {
      const bool has_master = masters && is_half(parameter);
      const auto size = static_cast<double>(has_master ? 4 : c10::elementSize(parameter.type));
      most = std::max(most, static_cast<int64_t>(count * size * (slots + (has_master ? 1 : 0))));
    };
    if (configs.empty()) note(kSlotsOfAdam, master_weights);
    for (const OptimizerConfig& config : configs) {
      if (!matches(config.pattern(), parameter.name)) continue;
      note(std::visit(Slots{parameter}, config.kind()),
           master_weights || config.has_master_weights());
    }
  }
  return bytes;
}

RecordedStep unrecorded_step(const Description& description, std::vector<int64_t> state_bytes) {
  const size_t count = description.parameters.size();
  RecordedStep step;
  step.state_bytes = std::move(state_bytes);
  step.cast_to.resize(count);
  step.moments.resize(2 * count);
  step.backward = count;
  step.update = 2 * count;
  for (size_t i = 0; i < count; ++i) {
    Moment& last = step.moments[2 * count - 1 - i];
    step.moments[i].reads = last.reads = {i};
    if (description.parameters[i].trains) last.arrivals = {i};
  }
  return step;
}

AutomaticChoice choose_unrecorded(const Description& description,
                                  const std::vector<int64_t>& state_bytes,
                                  const std::vector<Setting>& settings, const Cluster& cluster,
                                  double memory_bytes) {
  TORCH_INTERNAL_ASSERT(!settings.empty(), "there is nothing to choose from");
  const RecordedStep step = unrecorded_step(description, state_bytes);
  Cluster links = cluster;
  links.runtime_bytes = 0.0;
  std::vector<Forecast> forecasts;
  for (const Setting& setting : settings) {
    forecasts.push_back(forecast_of(step, description, setting, links));
    forecasts.back().step_s = 0.0;  // nobody knows it yet, so that the first one that fits is taken
  }
  const Choice fits = choose(forecasts, memory_bytes * (1.0 - kPartForActivations));
  AutomaticChoice choice{.fits = fits.best.has_value(), .reason = {}};
  const auto least = std::ranges::min_element(forecasts, {}, &Forecast::memory_bytes);
  choice.chosen = fits.best.value_or(static_cast<size_t>(least - forecasts.begin()));
  choice.reason = reason_of(forecasts, choice, memory_bytes);
  return choice;
}

}  // namespace levin::forecast
