#include "levin/strategy/sync_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/var_mean.h>

#include <array>
#include <memory>
#include <numeric>

#include "levin/base/check.h"
#include "levin/graph/interposer.h"

namespace levin {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

// A kernel is a plain function, called by the dispatcher: this is how it learns of the ranks.
thread_local comm::ProcessGroup* current_group = nullptr;

/// All dims but the channels'.
std::vector<int64_t> reduced_dims(const Tensor& input) {
  std::vector<int64_t> dims(static_cast<size_t>(input.dim()));
  std::iota(dims.begin(), dims.end(), int64_t{0});
  dims.erase(dims.begin() + 1);
  return dims;
}

/// A number for each channel, to be combined with the input.
Tensor by_channel(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = values.numel();
  return values.to(input.scalar_type()).view(sizes);
}

Tensor count_of(const Tensor& input) {
  const int64_t count = input.numel() / input.size(1);
  return at::full({1}, static_cast<double>(count), at::kDouble);
}

void check_device(const Tensor& input) {
  LEVIN_CHECK(current_group != nullptr && input.is_cpu(), "strategy.sync_batchnorm",
              "got a batch norm over a tensor on {}, wanted the CPU: set --sync-batchnorm false",
              input.device().str());
}

struct Statistics {
  Tensor mean, variance;  ///< double; the variance is the biased one
  double count = 0;
};

/// Of all ranks' batches, put together in rank order (Chan et al. 1979).
Statistics statistics_of(const Tensor& input) {
  const int64_t channels = input.size(1);
  const auto [variance, mean] = at::var_mean(input, reduced_dims(input), /*correction=*/0);
  const Tensor own = at::cat({count_of(input), mean.to(at::kDouble), variance.to(at::kDouble)});
  const Tensor all = at::empty({current_group->size(), own.numel()}, own.options());
  current_group->all_gather(all, own);
  const Tensor counts = all.narrow(1, 0, 1);
  const Tensor means = all.narrow(1, 1, channels);
  const Tensor variances = all.narrow(1, 1 + channels, channels);
  const Tensor total = counts.sum();
  const Tensor overall = (counts * means).sum(0) / total;
  const Tensor spread = (counts * (variances + (means - overall).square())).sum(0) / total;
  return {overall, spread, total.item<double>()};
}

void move_towards(const OptionalTensor& running, const Tensor& value, double momentum) {
  if (running && running->defined()) {
    running->mul_(1 - momentum).add_(value.to(running->scalar_type()), momentum);
  }
}

ThreeTensors forward_over_ranks(const Tensor& input, const OptionalTensor& weight,
                                const OptionalTensor& bias, const OptionalTensor& running_mean,
                                const OptionalTensor& running_var, bool training, double momentum,
                                double eps) {
  check_device(input);
  const Statistics statistics = statistics_of(input);
  const double unbiased = statistics.count / std::max(statistics.count - 1, 1.0);
  move_towards(running_mean, statistics.mean, momentum);
  move_towards(running_var, statistics.variance * unbiased, momentum);
  const Tensor type_of = weight && weight->defined() ? *weight : input;
  const Tensor mean = statistics.mean.to(type_of.scalar_type());
  const Tensor inverse = (statistics.variance + eps).rsqrt().to(type_of.scalar_type());
  const Tensor output = std::get<0>(
      at::native_batch_norm(input, weight, bias, mean,
                            statistics.variance.to(type_of.scalar_type()), false, momentum, eps));
  return {output, mean, inverse};
}

// Ioffe and Szegedy 2015, with the two means over the batches of all ranks. The gradients of weight
// and bias are this rank's; the strategy reduces them as all others.
ThreeTensors backward_over_ranks(const Tensor& grad_out, const Tensor& input,
                                 const OptionalTensor& weight, const OptionalTensor& running_mean,
                                 const OptionalTensor& running_var, const OptionalTensor& save_mean,
                                 const OptionalTensor& save_invstd, bool train, double eps,
                                 std::array<bool, 3> output_mask) {
  check_device(input);
  const auto dims = reduced_dims(input);
  const Tensor centred = input - by_channel(*save_mean, input);
  const Tensor sum = grad_out.sum(dims);
  const Tensor product = (grad_out * centred).sum(dims);
  Tensor total = at::cat({count_of(input), sum.to(at::kDouble), product.to(at::kDouble)});
  current_group->all_reduce(total, ReduceOp::kSum);
  const Tensor means = total.narrow(0, 1, 2 * sum.numel()) / total[0];
  const Tensor mean = means.narrow(0, 0, sum.numel());
  const Tensor slope =
      means.narrow(0, sum.numel(), sum.numel()) * save_invstd->to(at::kDouble).square();
  ThreeTensors gradients;
  if (output_mask[0]) {
    Tensor scale = *save_invstd;
    if (weight && weight->defined()) scale = scale * *weight;
    std::get<0>(gradients) =
        (grad_out - by_channel(mean, input) - centred * by_channel(slope, input)) *
        by_channel(scale, input);
  }
  if (output_mask[1]) std::get<1>(gradients) = product * *save_invstd;
  if (output_mask[2]) std::get<2>(gradients) = sum;
  return gradients;
}

/// An operator that runs over the ranks in training mode.
struct OverRanks {
  c10::OperatorHandle op;
  c10::KernelFunction kernel;
  size_t mode;  ///< the argument that says whether it is training
};

class BatchNormHandler final : public graph::OperatorHandler {
 public:
  explicit BatchNormHandler(comm::ProcessGroup& group) : group_(group) {}

  void call(graph::OperatorCall& call) override {
    for (const OverRanks& over_ranks : over_ranks_) {
      if (call.op() != over_ranks.op) continue;
      auto& stack = call.stack();
      const size_t first = stack.size() - call.op().schema().arguments().size();
      if (!stack[first + over_ranks.mode].toBool()) break;
      current_group = &group_;
      return over_ranks.kernel.callBoxed(call.op(), {}, &stack);
    }
    call.proceed();
  }

 private:
  static c10::OperatorHandle find(const char* name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  }

  comm::ProcessGroup& group_;
  std::array<OverRanks, 2> over_ranks_ = {
      OverRanks{find("aten::native_batch_norm"),
                c10::KernelFunction::makeFromUnboxedRuntimeFunction(&forward_over_ranks), 5},
      OverRanks{find("aten::native_batch_norm_backward"),
                c10::KernelFunction::makeFromUnboxedRuntimeFunction(&backward_over_ranks), 7}};
};

}  // namespace

struct SyncBatchNormGuard::Interposed {
  explicit Interposed(comm::ProcessGroup& group)
      : handler(std::make_unique<BatchNormHandler>(group)), scope(*handler) {}

  std::unique_ptr<graph::OperatorHandler> handler;
  graph::HandlerScope scope;
};

SyncBatchNormGuard::SyncBatchNormGuard(comm::ProcessGroup* group)
    : interposed_(group == nullptr ? nullptr : std::make_unique<Interposed>(*group)) {}

SyncBatchNormGuard::~SyncBatchNormGuard() = default;

}  // namespace levin
