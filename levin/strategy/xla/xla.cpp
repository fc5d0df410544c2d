#include "levin/strategy/xla/xla.h"

#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/ddp/agreement.h"
#include "levin/strategy/ddp/gradient_exchange.h"
#include "levin/xla/device/runtime.h"

namespace levin {
namespace {

class Xla : public Strategy {
 public:
  explicit Xla(const StrategyContext& context)
      : Strategy("xla", context.group),
        runtime_(context.xla),
        group_(context.group),
        exchanges_(context.group, context.ddp) {
    LEVIN_CHECK(group_.size() == 1 || ddp::GradientExchange::does(context.ddp),
                "strategy.ddp.options",
                "strategy 'xla' takes no --ddp-comm-hook, --ddp-static-graph, --ddp-overlap and "
                "--ddp-overlap-update, and got {}; leave them out",
                changed_ddp_options(context.ddp));
  }

  void setup(torch::nn::Module& module, at::Device device) override {
    if (group_.size() == 1) return module.to(device);
    runtime_->sync();  // what is recorded of its tensors holds the memory that they leave here
    ddp::place_as_first(group_, module, at::kCPU);
    module.to(device);
    exchanges_.add(module);
  }

  std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                    std::vector<NamedTensor> parameters) override {
    for (const NamedTensor& parameter : parameters) parameters_.push_back(parameter.tensor);
    auto optimizer = optim::build_optimizer(config, std::move(parameters));
    optimizer->set_capturable(true);
    runtime_->sync();  // or the first step's program would make the state, and differ
    return optimizer;
  }

  /// A batch within a group is a program of its own, so that a group of any size needs but two.
  bool backward(const at::Tensor& loss, bool synchronize, bool) override {
    check_has_loss(loss, name());
    if (synchronize) exchanges_.begin();
    levin::backward(loss);
    if (synchronize) {
      exchanges_.reduce();
    } else {
      keep_gradients();
      runtime_->sync();
    }
    return true;
  }

  /// As torch_xla's optimizer_step: where the program of the step ends. Gradients that were kept
  /// longer would be results of it, written to memory for nobody.
  void update(optim::Optimizer& optimizer) override {
    optimizer.step();
    exchanges_.agree_on_buffers();
    optimizer.zero_grad();
    runtime_->sync();
  }
  void agree_on_buffers() override {
    exchanges_.agree_on_buffers();
    runtime_->sync();
  }

 private:
  /// The next program takes them as inputs: each in memory of its own.
  void keep_gradients() const {
    for (const at::Tensor& parameter : parameters_) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (gradient.defined() && !xla::Runtime::is_whole(gradient)) gradient = gradient.clone();
    }
  }

  std::shared_ptr<xla::Runtime> runtime_;
  comm::ProcessGroup group_;
  std::vector<at::Tensor> parameters_;
  ddp::Exchanges exchanges_;  ///< with none in it where the process is alone
};

}  // namespace

std::unique_ptr<Strategy> make_xla(const StrategyContext& context) {
  LEVIN_CHECK(
      context.xla != nullptr, "strategy.xla",
      "strategy 'xla' keeps a module on devices of an XLA plugin; set --accelerator tpu, or "
      "--accelerator xla with --pjrt-plugin");
  return std::make_unique<Xla>(context);
}

}  // namespace levin
