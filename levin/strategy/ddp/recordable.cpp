#include "levin/strategy/ddp/recordable.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "levin/base/check.h"
#include "levin/comm/operators.h"
#include "levin/optim/clip.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/ddp/agreement.h"
#include "levin/strategy/ddp/buckets.h"

namespace levin {
namespace {

/// A gradient, and whether a backward has written to it since.
class GradientMark {
 public:
  explicit GradientMark(const at::Tensor& parameter) : gradient_(parameter.grad()) {
    if (gradient_.defined()) version_ = gradient_._version();
  }
  bool is_touched(const at::Tensor& parameter) const {
    const at::Tensor& now = parameter.grad();
    return now.defined() && (!now.is_same(gradient_) || now._version() != version_);
  }

 private:
  at::Tensor gradient_;
  int64_t version_ = 0;
};

/// One module over the ranks.
class RecordablePart {
 public:
  RecordablePart(const comm::ProcessGroup& group, torch::nn::Module& module,
                 const DdpOptions& options)
      : group_(group), module_(&module), parameters_(named_parameters(module)), options_(options) {
    for (const at::Tensor& buffer : module.buffers()) {
      if (buffer.defined()) buffers_.push_back(buffer);
    }
  }

  bool is_of(const torch::nn::Module& module) const { return module_ == &module; }

  void begin() {
    marks_.clear();
    for (const NamedTensor& parameter : parameters_) marks_.emplace_back(parameter.tensor);
  }

  void reduce() {
    bool touched = false;
    for (size_t i = 0; i < marks_.size(); ++i) {
      touched |= marks_[i].is_touched(parameters_[i].tensor);
    }
    marks_.clear();
    if (!touched) return;
    const at::NoGradGuard no_grad;
    const ReduceOp op = options_.gradient_reduction == "sum" ? ReduceOp::kSum : ReduceOp::kMean;
    for (const std::vector<at::Tensor>& bucket : buckets()) {
      comm::call_all_reduce(bucket, group_, op);
    }
    if (options_.broadcast_buffers && !buffers_.empty()) {
      comm::call_broadcast(buffers_, group_, /*root=*/0);
    }
  }

 private:
  /// Gradients that go at a time, in about the order in which backward gives them.
  std::vector<std::vector<at::Tensor>> buckets() const {
    constexpr double kMiB = 1 << 20;
    std::vector<at::Tensor> gradients;
    std::vector<at::ScalarType> types;
    for (const NamedTensor& parameter : parameters_) {
      if (!parameter.tensor.requires_grad()) continue;
      const at::Tensor& gradient = parameter.tensor.grad();
      LEVIN_CHECK(gradient.defined(), "strategy.ddp.unused",
                  "{} got no gradient; use it in the loss, freeze it, or set --compile no, under "
                  "which parameters may go unused",
                  parameter.name);
      gradients.push_back(gradient);
      types.push_back(gradient.scalar_type());
    }
    std::vector<size_t> order(gradients.size());
    std::iota(order.rbegin(), order.rend(), size_t{0});
    std::vector<std::vector<at::Tensor>> buckets;
    for (const ddp::BucketPlan& plan : ddp::plan_buckets(
             gradients, order, types, static_cast<int64_t>(options_.first_bucket_mb * kMiB),
             static_cast<int64_t>(options_.bucket_cap_mb * kMiB))) {
      std::vector<at::Tensor>& bucket = buckets.emplace_back();
      for (const size_t index : plan.members) bucket.push_back(gradients[index]);
    }
    return buckets;
  }

  comm::ProcessGroup group_;
  const torch::nn::Module* module_;
  std::vector<NamedTensor> parameters_;
  std::vector<at::Tensor> buffers_;
  std::vector<GradientMark> marks_;
  DdpOptions options_;
};

class RecordableDdp final : public Strategy {
 public:
  explicit RecordableDdp(const StrategyContext& context)
      : group_(context.group), options_(context.ddp) {
    const bool is_plain = options_.comm_hook == "none" && options_.local_sgd_start_step < 0 &&
                          !options_.overlap_update;
    LEVIN_CHECK(is_plain, "strategy.ddp.options",
                "--compile replay takes no --ddp-comm-hook, --ddp-local-sgd-start-step and "
                "--ddp-overlap-update; leave them out, or set --compile no");
  }

  std::string_view name() const override { return "ddp"; }
  DataSlice slice() const override { return {group_.rank(), group_.size()}; }

  void setup(torch::nn::Module& module, at::Device device) override {
    ddp::place_as_first(group_, module, device);
    std::erase_if(parts_, [&](const RecordablePart& part) { return part.is_of(module); });
    parts_.emplace_back(group_, module, options_);
  }

  void forget() override { parts_.clear(); }

  std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                    std::vector<NamedTensor> parameters) override {
    return optim::build_optimizer(config, std::move(parameters));
  }

  void backward(const at::Tensor& loss, bool synchronize) override {
    if (synchronize) {
      for (RecordablePart& part : parts_) part.begin();
    }
    levin::backward(loss);
    if (!synchronize) return;
    for (RecordablePart& part : parts_) part.reduce();
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
  std::vector<RecordablePart> parts_;  ///< in the order of setup, which is the same on every rank
};

}  // namespace

std::unique_ptr<Strategy> make_recordable_ddp(const StrategyContext& context) {
  return std::make_unique<RecordableDdp>(context);
}

}  // namespace levin
