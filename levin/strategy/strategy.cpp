#include "levin/strategy/strategy.h"

#include <torch/nn/module.h>

#include <array>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/optim/optim.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/strategies.h"

namespace levin {
namespace {

class Single final : public Strategy {
 public:
  explicit Single(const comm::ProcessGroup& alone) : Strategy("single", alone) {}

  void setup(torch::nn::Module& module, at::Device device, InitValues values) override {
    if (is_on_meta(module)) materialize(module, {.device = device, .values = values});
    module.to(device);
  }

  bool backward(const at::Tensor& loss, bool, bool has_gradients) override {
    if (!loss.defined()) return has_gradients;
    levin::backward(loss);
    return true;
  }
};

struct Entry {
  std::string_view name;
  std::unique_ptr<Strategy> (*make)(const StrategyContext&);
};
constexpr std::array<Entry, 5> kStrategies = {{{"single", make_single},
                                               {"ddp", make_ddp},
                                               {"fsdp", make_fsdp},
                                               {"zero", make_zero},
                                               {"xla", make_xla}}};

}  // namespace

ComputeScope::~ComputeScope() = default;
Joinable::~Joinable() = default;
Strategy::~Strategy() = default;

std::unique_ptr<optim::Optimizer> Strategy::build_optimizer(const OptimizerConfig& config,
                                                            std::vector<NamedTensor> parameters) {
  return optim::build_optimizer(config, std::move(parameters));
}

at::Tensor Strategy::clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                                    double norm_type) {
  wait_gradients();
  return optim::clip_grad_norm(parameters, max_norm, norm_type);
}

std::unique_ptr<Strategy> make_single(const StrategyContext& context) {
  LEVIN_CHECK(context.group.size() == 1, "strategy.single.world_size",
              "strategy 'single' supports one process, but this run has {}; set --strategy ddp, or "
              "start one process",
              context.group.size());
  return std::make_unique<Single>(context.group);
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kStrategies) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Strategy> make_strategy(std::string_view name, const StrategyContext& context) {
  check_ddp_options(context.ddp);
  const std::string_view best = context.xla != nullptr      ? "xla"
                                : context.group.size() == 1 ? "single"
                                                            : "ddp";
  const std::string_view wanted = name == "auto" ? best : name;
  // A run that came to a single process exchanges nothing, so the options of 'single' are checked
  // only if it was named.
  const std::string changed = name == "single" ? changed_ddp_options(context.ddp) : "";
  LEVIN_CHECK(
      changed.empty(), "strategy.ddp.options",
      "strategy 'single' has no communication, but got {}; leave them out, or set --strategy ddp",
      changed);
  const bool shards = wanted == "fsdp" || wanted == "zero";
  const std::string sharding = shards ? "" : changed_fsdp_options(context.fsdp);
  LEVIN_CHECK(
      sharding.empty(), "strategy.fsdp.options",
      "strategy '{}' does not shard parameters, but got {}; leave them out, or set --strategy fsdp",
      wanted, sharding);
  for (const Entry& entry : kStrategies) {
    if (entry.name == wanted) return entry.make(context);
  }
  std::vector<std::string> names = strategy_names();
  const std::string listed = to_text(names);
  names.emplace_back("auto");
  const auto close = nearest(name, names);
  LEVIN_FAIL("strategy.name", "got '{}', wanted auto or {}; {}", name, listed,
             close ? fmt::format("did you mean '{}'?", *close) : "set --strategy");
}

}  // namespace levin
