#include <algorithm>

#include "levin/base/check.h"
#include "levin/optim/fused.h"
#include "levin/optim/master_weights.h"
#include "levin/optim/offload/offloaded.h"
#include "levin/optim/optimizer.h"
#include "levin/optim/plain.h"
#include "levin/optim/torch_adapter.h"

namespace levin::optim {
namespace {

void check_common(double lr, double weight_decay) {
  LEVIN_CHECK(lr >= 0.0, "optim.options", "got lr = {}, wanted at least 0", lr);
  LEVIN_CHECK(weight_decay >= 0.0, "optim.options", "got weight_decay = {}, wanted at least 0",
              weight_decay);
}

void check(const SgdOptions& options) {
  check_common(options.lr, options.weight_decay);
  LEVIN_CHECK(options.momentum >= 0.0, "optim.options", "got momentum = {}, wanted at least 0",
              options.momentum);
  LEVIN_CHECK(options.momentum > 0.0 || options.dampening == 0.0, "optim.options",
              "got dampening = {} without momentum, where it has no effect; set momentum, too",
              options.dampening);
  LEVIN_CHECK(!options.nesterov || (options.momentum > 0.0 && options.dampening == 0.0),
              "optim.options", "nesterov needs a momentum above 0 and dampening = 0, got {} and {}",
              options.momentum, options.dampening);
}

void check_betas(const std::pair<double, double>& betas) {
  for (const double beta : {betas.first, betas.second}) {
    LEVIN_CHECK(beta >= 0.0 && beta < 1.0, "optim.options", "got beta = {}, wanted 0 to below 1",
                beta);
  }
}

template <class Options>
void check_averages(const Options& options) {
  check_common(options.lr, options.weight_decay);
  check_betas(options.betas);
  LEVIN_CHECK(options.eps >= 0.0, "optim.options", "got eps = {}, wanted at least 0", options.eps);
}
void check(const AdamOptions& options) { check_averages(options); }
void check(const AdamWOptions& options) { check_averages(options); }
void check(const TorchOptimizerOptions&) {}
void check(const NAdamOptions& options) {
  check_averages(options);
  LEVIN_CHECK(options.momentum_decay >= 0.0, "optim.options",
              "got momentum_decay = {}, wanted at least 0", options.momentum_decay);
}
void check(const RAdamOptions& options) { check_averages(options); }
void check(const LionOptions& options) {
  check_common(options.lr, options.weight_decay);
  check_betas(options.betas);
}
void check(const AdafactorOptions& options) {
  check_common(options.lr.value_or(0.0), options.weight_decay);
  LEVIN_CHECK(options.lr.has_value() != options.relative_step, "optim.options",
              "got relative_step = {} {} lr for adafactor, wanted one of them; set lr and "
              "relative_step = false, or relative_step = true",
              options.relative_step, options.lr ? "with" : "without");
  LEVIN_CHECK(options.relative_step || !options.warmup_init, "optim.options",
              "got warmup_init without relative_step, wanted both");
  LEVIN_CHECK(options.eps.first >= 0.0 && options.eps.second >= 0.0, "optim.options",
              "got eps = {{{}, {}}}, wanted at least 0", options.eps.first, options.eps.second);
  LEVIN_CHECK(options.clip_threshold > 0.0, "optim.options",
              "got clip_threshold = {}, wanted above 0", options.clip_threshold);
  LEVIN_CHECK(options.decay_rate <= 0.0, "optim.options", "got decay_rate = {}, wanted at most 0",
              options.decay_rate);
  if (options.beta1) check_betas({*options.beta1, 0.0});
}
void check(const MuonOptions& options) {
  check_common(options.lr, options.weight_decay);
  LEVIN_CHECK(options.momentum >= 0.0, "optim.options", "got momentum = {}, wanted at least 0",
              options.momentum);
  LEVIN_CHECK(options.ns_steps >= 0 && options.ns_steps < 100, "optim.options",
              "got ns_steps = {}, wanted 0 to 99", options.ns_steps);
  LEVIN_CHECK(options.eps >= 0.0, "optim.options", "got eps = {}, wanted at least 0", options.eps);
  LEVIN_CHECK(options.adjust_lr_fn == "original" || options.adjust_lr_fn == "match_rms_adamw",
              "optim.options", "got adjust_lr_fn = '{}', wanted original or match_rms_adamw",
              options.adjust_lr_fn);
}

double weight_decay_of(const OptimizerConfig::Kind& kind) {
  return std::visit(
      [](const auto& options) {
        if constexpr (requires { options.weight_decay; }) return options.weight_decay;
        return 0.0;
      },
      kind);
}

double momentum_of(const OptimizerConfig::Kind& kind) {
  return std::visit(
      [](const auto& options) {
        if constexpr (requires { options.betas; }) return options.betas.first;
        if constexpr (requires { options.momentum; }) return options.momentum;
        return 0.0;
      },
      kind);
}

/// Splits each group into the parameters of at least two dimensions and the others, which have no
/// weight decay.
std::vector<ParameterGroup> apart_from_weights(std::vector<ParameterGroup> groups,
                                               const std::vector<NamedTensor>& parameters) {
  std::vector<ParameterGroup> split;
  for (ParameterGroup& group : groups) {
    ParameterGroup others = group;
    others.weight_decay = 0.0;
    const auto is_weight = [&](size_t member) { return parameters[member].tensor.dim() >= 2; };
    std::erase_if(group.members, [&](size_t member) { return !is_weight(member); });
    std::erase_if(others.members, is_weight);
    if (!group.members.empty()) split.push_back(std::move(group));
    if (!others.members.empty()) split.push_back(std::move(others));
  }
  return split;
}

/// The groups asked for and a last one, "*", for the rest; empty ones of the latter sort are left
/// out.
std::vector<ParameterGroup> form_groups(const OptimizerConfig& config,
                                        const std::vector<NamedTensor>& parameters) {
  std::vector<ParameterGroup> groups;
  for (const auto& [pattern, options] : config.groups()) {
    check_common(options.lr.value_or(0.0), options.weight_decay.value_or(0.0));
    const double lr = options.lr.value_or(config.lr());
    groups.push_back(
        {pattern, lr, lr, options.weight_decay.value_or(weight_decay_of(config.kind())), {}});
  }
  groups.push_back({"*", config.lr(), config.lr(), weight_decay_of(config.kind()), {}});
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& g) {
      return matches(g.pattern, parameters[i].name);
    });
    group->members.push_back(i);
  }
  for (size_t i = 0; i + 1 < groups.size(); ++i) {
    LEVIN_CHECK(
        !groups[i].members.empty(), "optim.group",
        "no parameter is left for the parameter group '{}'; the first parameter is named '{}'",
        groups[i].pattern, parameters.front().name);
  }
  if (groups.back().members.empty()) groups.pop_back();
  if (config.decays_only_weights()) groups = apart_from_weights(std::move(groups), parameters);
  for (ParameterGroup& group : groups) group.momentum = momentum_of(config.kind());
  return groups;
}

/// A learning rate that follows from the step has no use for a schedule or a group's own.
void check_relative_step(const OptimizerConfig& config) {
  const auto* adafactor = std::get_if<AdafactorOptions>(&config.kind());
  if (adafactor == nullptr || !adafactor->relative_step) return;
  const bool has_rates = std::ranges::any_of(
      config.groups(),
      [](const OptimizerConfig::Group& group) { return group.options.lr.has_value(); });
  LEVIN_CHECK(!config.schedule() && !has_rates, "optim.options",
              "adafactor with relative_step sets the learning rate itself, but a schedule or a "
              "group's lr is given; set lr and relative_step = false");
}

}  // namespace

std::unique_ptr<Optimizer> build_optimizer(const OptimizerConfig& config,
                                           std::vector<NamedTensor> parameters) {
  const size_t offered = parameters.size();
  // Parameters that are frozen now stay in: they may be unfrozen later.
  std::erase_if(parameters, [&](const NamedTensor& parameter) {
    const at::ScalarType type = parameter.tensor.scalar_type();
    return !(at::isFloatingType(type) || at::isComplexType(type)) ||
           !matches(config.pattern(), parameter.name) ||
           (config.filter() && !config.filter()(parameter.name, parameter.tensor));
  });
  LEVIN_CHECK(!parameters.empty(), "optim.parameters",
              "none of the {} parameters requires a gradient and matches '{}'{}; change the "
              "pattern, or set requires_grad",
              offered, config.pattern(),
              config.filter() ? " and the function of parameters_if()" : "");
  const bool has_half = std::ranges::any_of(parameters, [](const NamedTensor& parameter) {
    return at::isReducedFloatingType(parameter.tensor.scalar_type());
  });
  const bool has_masters = config.has_master_weights() && has_half;
  const bool is_offloaded = config.state_memory() != nullptr;
  if (has_masters && !is_offloaded) return make_master_weights(config, parameters);
  std::visit([](const auto& options) { check(options); }, config.kind());
  check_relative_step(config);
  std::vector<ParameterGroup> groups = form_groups(config, parameters);
  if (is_offloaded) {
    return make_offloaded(config, std::move(parameters), std::move(groups), has_masters);
  }
  if (auto rule = make_plain_rule(config.kind())) {
    return make_plain(config, std::move(rule), std::move(parameters), std::move(groups));
  }
  // LibTorch 2.13's fused SGD leaves half parameters on the CPU unchanged, except for a vector's
  // rest.
  const bool is_half_sgd = std::holds_alternative<SgdOptions>(config.kind()) && has_half;
  const bool fuse = !std::holds_alternative<TorchOptimizerOptions>(config.kind()) &&
                    std::ranges::all_of(parameters, [&](const NamedTensor& p) {
                      return can_fuse(p.tensor) && !(is_half_sgd && p.tensor.is_cpu());
                    });
  return fuse ? make_fused(config, std::move(parameters), std::move(groups))
              : make_torch_adapter(config, std::move(parameters), std::move(groups));
}

}  // namespace levin::optim
