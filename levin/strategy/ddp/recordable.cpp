#include "levin/strategy/ddp/recordable.h"

#include <utility>

#include "levin/base/check.h"
#include "levin/optim/clip.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/ddp/agreement.h"
#include "levin/strategy/ddp/gradient_exchange.h"

namespace levin {
namespace {

class RecordableDdp final : public Strategy {
 public:
  explicit RecordableDdp(const StrategyContext& context)
      : group_(context.group), options_(context.ddp) {
    LEVIN_CHECK(ddp::GradientExchange::does(options_), "strategy.ddp.options",
                "--compile replay takes no --ddp-comm-hook, --ddp-local-sgd-start-step and "
                "--ddp-overlap-update; leave them out, or set --compile no");
    options_.find_unused_parameters = false;  // ranks would have to tell each other in each step
  }

  std::string_view name() const override { return "ddp"; }
  DataSlice slice() const override { return {group_.rank(), group_.size()}; }

  void setup(torch::nn::Module& module, at::Device device) override {
    ddp::place_as_first(group_, module, device);
    std::erase_if(parts_, [&](const ddp::GradientExchange& part) { return part.is_of(module); });
    parts_.emplace_back(group_, module, options_);
  }

  void forget() override { parts_.clear(); }

  std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                    std::vector<NamedTensor> parameters) override {
    return optim::build_optimizer(config, std::move(parameters));
  }

  void backward(const at::Tensor& loss, bool synchronize) override {
    if (synchronize) {
      for (ddp::GradientExchange& part : parts_) part.begin();
    }
    levin::backward(loss);
    if (!synchronize) return;
    for (ddp::GradientExchange& part : parts_) part.reduce();
  }

  at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                            double norm_type) override {
    return optim::clip_grad_norm(parameters, max_norm, norm_type);
  }

  State state_dict() const override { return {}; }
  void load_state_dict(const State& state) override {}

 private:
  comm::ProcessGroup group_;
  DdpOptions options_;
  std::vector<ddp::GradientExchange>
      parts_;  ///< in the order of setup, which is the same on every rank
};

}  // namespace

std::unique_ptr<Strategy> make_recordable_ddp(const StrategyContext& context) {
  return std::make_unique<RecordableDdp>(context);
}

}  // namespace levin
