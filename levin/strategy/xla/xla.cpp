#include "levin/strategy/xla/xla.h"

#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/optim/clip.h"
#include "levin/strategy/backward.h"
#include "levin/xla/device/runtime.h"

namespace levin {
namespace {

class Xla : public Strategy {
 public:
  explicit Xla(std::shared_ptr<xla::Runtime> runtime) : runtime_(std::move(runtime)) {}

  std::string_view name() const override { return "xla"; }
  DataSlice slice() const override { return {}; }
  int64_t parts_of_batch() const override { return runtime_->num_devices(); }

  void setup(torch::nn::Module& module, at::Device device) override { module.to(device); }

  std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                    std::vector<NamedTensor> parameters) override {
    for (const NamedTensor& parameter : parameters) parameters_.push_back(parameter.tensor);
    auto optimizer = optim::build_optimizer(config, std::move(parameters));
    optimizer->set_capturable(true);
    runtime_->sync();  // or the first step's program would make the state, and differ
    return optimizer;
  }

  Batch to_device(const Batch& batch, at::Device device) override {
    const xla::SplitScope split(*runtime_);
    return batch.to(device);
  }

  /// A batch within a group is a program of its own, so that a group of any size needs but two.
  void backward(const at::Tensor& loss, bool synchronize) override {
    levin::backward(loss);
    if (synchronize) return;
    keep_gradients();
    runtime_->sync();
  }

  /// As torch_xla's optimizer_step: where the program of the step ends. Gradients that were kept
  /// longer would be results of it, written to memory for nobody.
  void update(optim::Optimizer& optimizer) override {
    optimizer.step();
    optimizer.zero_grad();
    runtime_->sync();
  }

  void end_batch() override { runtime_->sync(); }
  void settle() override { runtime_->sync(); }

  at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                            double norm_type) override {
    return optim::clip_grad_norm(parameters, max_norm, norm_type);
  }

  void begin_join(bool) override {}
  void forget() override { parameters_.clear(); }
  State state_dict() const override { return {}; }
  void load_state_dict(const State&) override {}

 private:
  /// The next program takes them as inputs: each in memory of its own.
  void keep_gradients() const {
    for (const at::Tensor& parameter : parameters_) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (gradient.defined() && !xla::Runtime::is_whole(gradient)) gradient = gradient.clone();
    }
  }

  std::shared_ptr<xla::Runtime> runtime_;
  std::vector<at::Tensor> parameters_;
};

}  // namespace

std::unique_ptr<Strategy> make_xla(const StrategyContext& context) {
  LEVIN_CHECK(
      context.xla != nullptr, "strategy.xla",
      "strategy 'xla' keeps a module on devices of an XLA plugin; set --accelerator tpu, or "
      "--accelerator xla with --pjrt-plugin");
  LEVIN_CHECK(
      context.group.size() == 1, "strategy.xla",
      "strategy 'xla' runs in one process, which holds all devices of its machine, and this "
      "run has {}; start one",
      context.group.size());
  return std::make_unique<Xla>(context.xla);
}

}  // namespace levin
