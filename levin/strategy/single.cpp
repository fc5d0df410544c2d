#include "levin/strategy/single.h"

#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/optim/clip.h"
#include "levin/strategy/backward.h"

namespace levin {
namespace {

class Single : public Strategy {
 public:
  std::string_view name() const override { return "single"; }
  DataSlice slice() const override { return {}; }

  void setup(torch::nn::Module& module, at::Device device) override { module.to(device); }

  std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                    std::vector<NamedTensor> parameters) override {
    return optim::build_optimizer(config, std::move(parameters));
  }

  void backward(const at::Tensor& loss, bool) override { levin::backward(loss); }

  at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                            double norm_type) override {
    return optim::clip_grad_norm(parameters, max_norm, norm_type);
  }

  void begin_join(bool) override {}
  void forget() override {}
  State state_dict() const override { return {}; }
  void load_state_dict(const State&) override {}
};

}  // namespace

std::unique_ptr<Strategy> make_single(const StrategyContext& context) {
  LEVIN_CHECK(
      context.group.size() == 1, "strategy.single.world_size",
      "strategy 'single' runs one process and this run has {}; use --strategy ddp, or start "
      "one process",
      context.group.size());
  return std::make_unique<Single>();
}

}  // namespace levin
