#include "levin/strategy/single.h"

#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/strategy/backward.h"

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

}  // namespace

std::unique_ptr<Strategy> make_single(const StrategyContext& context) {
  LEVIN_CHECK(
      context.group.size() == 1, "strategy.single.world_size",
      "strategy 'single' runs one process and this run has {}; use --strategy ddp, or start "
      "one process",
      context.group.size());
  return std::make_unique<Single>(context.group);
}

}  // namespace levin
