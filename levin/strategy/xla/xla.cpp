// The strategy of the devices of one XLA plugin (TPU cores, GPUs, parts of a CPU). One process
// holds all of its machine's: each has the parameters and a part of every batch; the step is one
// program, over which XLA's partitioner (Xu et al. 2021, GSPMD) spreads the work and the sums over
// gradients. Several processes (the hosts of a TPU slice) run it as replicas, as ddp's ranks run
// theirs: each reads its part of the data, gradients are averaged within the program, and buffers
// are rank 0's.
#include "levin/base/check.h"
#include "levin/strategy/ddp/ddp.h"
#include "levin/strategy/strategies.h"
#include "levin/xla/device/runtime.h"

namespace levin {
namespace {

class Xla final : public ddp::Ddp {
 public:
  explicit Xla(const StrategyContext& context) : Ddp("xla", context), runtime_(context.xla) {
    const DdpOptions& ddp = context.ddp;
    LEVIN_CHECK(context.group.size() == 1 || (ddp.comm_hook == "none" && !ddp.static_graph &&
                                              ddp.overlap && !ddp.overlap_update),
                "strategy.ddp.options",
                "strategy 'xla' does not support --ddp-comm-hook, --ddp-static-graph, "
                "--ddp-overlap and --ddp-overlap-update, but got {}; leave them out",
                changed_ddp_options(ddp));
  }

  void setup(torch::nn::Module& module, at::Device device, InitValues values) override {
    runtime_->sync();  // recorded calls hold the memory that its tensors leave here
    Ddp::setup(module, device, values);
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
  bool backward(const at::Tensor& loss, bool synchronize, bool has_gradients) override {
    Ddp::backward(loss, synchronize, has_gradients);
    if (!synchronize) {
      keep_gradients();
      runtime_->sync();
    }
    return true;
  }

  /// Ends the program of the step here, as torch_xla's optimizer_step does. Gradients kept longer
  /// would become its results, and be written to memory that nobody reads.
  void update(optim::Optimizer& optimizer) override {
    {
      const xla::Runtime::OptimizerScope scope(*runtime_, optimizer.set_capturable(true));
      Ddp::update(optimizer);
    }
    optimizer.zero_grad();
    runtime_->sync();
  }
  void meet(Meeting meeting) override {
    Ddp::meet(meeting);
    if (meeting == Meeting::kAgreeOnBuffers) runtime_->sync();
  }

 private:
  /// The next program takes them as inputs: each in memory of its own.
  void keep_gradients() const {
    for (const at::Tensor& parameter : parameters_) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (gradient.defined() && !runtime_->is_whole(gradient)) gradient = gradient.clone();
    }
  }

  std::shared_ptr<xla::Runtime> runtime_;
  std::vector<at::Tensor> parameters_;
};

}  // namespace

std::unique_ptr<Strategy> make_xla(const StrategyContext& context) {
  LEVIN_CHECK(context.xla != nullptr, "strategy.xla",
              "strategy 'xla' needs devices of an XLA plugin; set --accelerator tpu, or "
              "--accelerator xla with --pjrt-plugin");
  return std::make_unique<Xla>(context);
}

}  // namespace levin
