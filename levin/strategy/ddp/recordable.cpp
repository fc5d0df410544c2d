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
      : group_(context.group), exchanges_(context.group, recordable(context.ddp)) {}

  std::string_view name() const override { return "ddp"; }
  DataSlice slice() const override { return {group_.rank(), group_.size()}; }

  void setup(torch::nn::Module& module, at::Device device) override {
    ddp::place_as_first(group_, module, device);
    exchanges_.add(module);
  }

  void forget() override { exchanges_.clear(); }

  std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                    std::vector<NamedTensor> parameters) override {
    return optim::build_optimizer(config, std::move(parameters));
  }

  void backward(const at::Tensor& loss, bool synchronize) override {
    if (synchronize) exchanges_.begin();
    levin::backward(loss);
    if (synchronize) exchanges_.reduce();
  }

  void update(optim::Optimizer& optimizer) override {
    optimizer.step();
    exchanges_.agree_on_buffers();
  }
  void agree_on_buffers() override { exchanges_.agree_on_buffers(); }

  at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                            double norm_type) override {
    return optim::clip_grad_norm(parameters, max_norm, norm_type);
  }

  State state_dict() const override { return {}; }
  void load_state_dict(const State& state) override {}

 private:
  static DdpOptions recordable(DdpOptions options) {
    LEVIN_CHECK(ddp::GradientExchange::does(options), "strategy.ddp.options",
                "--compile replay takes no --ddp-comm-hook, --ddp-local-sgd-start-step, "
                "--ddp-static-graph, --ddp-overlap and --ddp-overlap-update, and got {}; leave "
                "them out, or set --compile no",
                changed_ddp_options(options));
    options.find_unused_parameters = false;  // ranks would have to tell each other in each step
    return options;
  }

  comm::ProcessGroup group_;
  ddp::Exchanges exchanges_;
};

}  // namespace

std::unique_ptr<Strategy> make_recordable_ddp(const StrategyContext& context) {
  return std::make_unique<RecordableDdp>(context);
}

}  // namespace levin
