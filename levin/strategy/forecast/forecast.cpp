#include "levin/strategy/forecast/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/strategy/forecast/forecaster_impl.h"

namespace levin::forecast {
namespace {

void check(const Setting& setting) {
  const Mesh& mesh = setting.mesh;
  LEVIN_CHECK(setting.strategy != "single" || mesh.size() == 1, "strategy.forecast.mesh",
              "got strategy single on a mesh of {} ranks, wanted 1; set --strategy ddp",
              mesh.size());
  LEVIN_CHECK(setting.strategy != "ddp" || mesh.shard == 1, "strategy.forecast.mesh",
              "got strategy ddp on {}, which keeps the whole model on each rank; name the axis dp, "
              "or set --strategy fsdp",
              to_text(mesh));
}

}  // namespace

Mesh mesh_of(std::string_view text) {
  Mesh mesh;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const size_t equals = one.find('=');
    const std::string_view axis = one.substr(0, equals);
    int64_t size = 0;
    if (equals != std::string_view::npos) from_text(one.substr(equals + 1), size);
    const bool replicates = axis == "dp" || axis == "replicate";
    LEVIN_CHECK((replicates || axis == "fsdp" || axis == "shard") && size >= 1,
                "strategy.forecast.mesh",
                "got '{}' in the mesh '{}', wanted dp=N or fsdp=N with N of at least 1, such as "
                "dp=64,fsdp=8",
                one, text);
    (replicates ? mesh.replicate : mesh.shard) *= size;
  }
  return mesh;
}

std::string to_text(const Mesh& mesh) {
  if (mesh.shard == 1) return fmt::format("dp={}", mesh.replicate);
  if (mesh.replicate == 1) return fmt::format("fsdp={}", mesh.shard);
  return fmt::format("dp={},fsdp={}", mesh.replicate, mesh.shard);
}

std::string Setting::name() const {
  return strategy == "zero" ? fmt::format("zero {}", zero_stage) : strategy;
}

Setting setting_of(std::string_view strategy, const Mesh& mesh) {
  Setting setting{.strategy = std::string(strategy), .mesh = mesh};
  if (strategy.starts_with("zero")) {
    setting.strategy = "zero";
    strategy.remove_prefix(4);
    if (strategy.starts_with("-") || strategy.starts_with(" ")) strategy.remove_prefix(1);
    if (!strategy.empty()) setting.zero_stage = strategy.size() == 1 ? strategy[0] - '0' : 0;
  }
  const bool is_known =
      setting.strategy == "single" || setting.strategy == "ddp" || setting.strategy == "fsdp" ||
      (setting.strategy == "zero" && setting.zero_stage >= 1 && setting.zero_stage <= 3);
  LEVIN_CHECK(is_known, "strategy.forecast.strategy",
              "got strategy '{}', wanted single, ddp, zero1, zero2, zero3 or fsdp",
              setting.strategy);
  // One axis alone is the one that is split.
  const bool shards = setting.strategy == "fsdp" || setting.strategy == "zero";
  if (shards && mesh.shard == 1) setting.mesh = {.replicate = 1, .shard = mesh.replicate};
  return setting;
}

std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[kNumKinds] = {
      "parameters", "gradients",   "gradient buffers", "optimizer state", "buffers",
      "inputs",     "activations", "gathered units",   "communication",   "process"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t Forecast::memory_bytes() const {
  return std::accumulate(memory.begin(), memory.end(), int64_t{0});
}

int64_t Forecast::collective_bytes(std::string_view name) const {
  int64_t bytes = 0;
  for (const PlannedCollective& each : collectives) {
    if (name.empty() || each.name == name) bytes += each.bytes;
  }
  return bytes;
}

double Forecast::hidden_s() const {
  double seconds = 0.0;
  for (const PlannedCollective& each : collectives) seconds += each.hidden_s;
  return seconds;
}

double Forecast::collective_s() const {
  double seconds = 0.0;
  for (const PlannedCollective& each : collectives) seconds += each.seconds;
  return seconds;
}

Forecast forecast_of(const RecordedStep& step, const Description& description,
                     const Setting& setting, const Cluster& cluster) {
  check(setting);
  const bool shards = setting.strategy == "fsdp" || setting.strategy == "zero";
  return shards ? make_sharded(step, description, setting, cluster)->run()
                : make_replicated(step, description, setting, cluster)->run();
}

std::vector<Setting> candidates(int64_t ranks, const Cluster& cluster) {
  const Mesh all{.replicate = ranks};
  if (ranks == 1) return {setting_of("single", all)};
  std::vector<Setting> settings;
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    settings.push_back(setting_of(strategy, all));
  }
  const int64_t node = cluster.ranks_per_node;
  if (node > 1 && ranks > node && ranks % node == 0) {
    settings.push_back(setting_of("fsdp", {.replicate = ranks / node, .shard = node}));
  }
  return settings;
}

Choice choose(const std::vector<Forecast>& forecasts, double memory_bytes) {
  constexpr double kGiga = 1e9;
  Choice choice;
  size_t num_fit = 0;
  const Forecast* smallest = nullptr;
  for (size_t i = 0; i < forecasts.size(); ++i) {
    const Forecast& each = forecasts[i];
    if (smallest == nullptr || each.memory_bytes() < smallest->memory_bytes()) smallest = &each;
    if (static_cast<double>(each.memory_bytes()) > memory_bytes) continue;
    ++num_fit;
    if (!choice.best || each.step_s < forecasts[*choice.best].step_s) choice.best = i;
  }
  if (!choice.best) {
    choice.reason = smallest == nullptr
                        ? "there is nothing to choose from"
                        : fmt::format("none fits {:.4g} GB; {} on {} needs least, {:.4g} GB",
                                      memory_bytes / kGiga, smallest->setting.name(),
                                      to_text(smallest->setting.mesh),
                                      static_cast<double>(smallest->memory_bytes()) / kGiga);
    return choice;
  }
  const Forecast& best = forecasts[*choice.best];
  choice.reason = fmt::format(
      "{} on {}: the fastest of the {} that fit {:.4g} GB ({:.4g} GB a rank, {:.4g} s a step)",
      best.setting.name(), to_text(best.setting.mesh), num_fit, memory_bytes / kGiga,
      static_cast<double>(best.memory_bytes()) / kGiga, best.step_s);
  return choice;
}

}  // namespace levin::forecast
