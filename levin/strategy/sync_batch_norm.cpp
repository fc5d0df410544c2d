#include "levin/strategy/sync_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/var_mean.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/comm/collectives/named_group.h"
#include "levin/comm/operators.h"
#include "levin/graph/record/interposer.h"

namespace levin {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Group = c10::intrusive_ptr<comm::NamedGroup>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

/// Returns all dims but the channels'.
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

/// Elements of each channel.
double count_each(const Tensor& input) {
  return static_cast<double>(input.numel()) / static_cast<double>(input.size(1));
}

Tensor count_of(const Tensor& input) {
  return at::full({1}, count_each(input), input.options().dtype(at::kDouble));
}

void check_device(const Tensor& input) {
  LEVIN_CHECK(input.is_cpu() || input.is_cuda() || input.is_xla(), "strategy.sync_batchnorm",
              "got a batch norm over a tensor on {}, wanted the CPU, a GPU or XLA; set "
              "--sync-batchnorm false",
              input.device().str());
}

/// A sum over a batch in a half type would be rounded to it, and overflow in float16.
Tensor to_sum(const Tensor& input) {
  const bool is_half = at::isReducedFloatingType(input.scalar_type());
  return is_half && !input.is_xla() ? input.to(at::kFloat) : input;
}

struct Statistics {
  Tensor mean, variance;  ///< double, on XLA float; the variance is the biased one
  Tensor unbiased;        ///< the variance that the running one moves towards
};

/// The ranks run one program, so that their batches have one size.
Statistics statistics_in_program(const Tensor& mean, const Tensor& variance, double count,
                                 const comm::ProcessGroup& group) {
  const Tensor own = mean.to(at::kFloat);
  const Tensor overall = own.clone();
  comm::call_all_reduce({overall}, group, ReduceOp::kMean);
  const Tensor spread = variance.to(at::kFloat) + (own - overall).square();
  comm::call_all_reduce({spread}, group, ReduceOp::kMean);
  const double total = count * static_cast<double>(group.size());
  return {overall, spread, spread * (total / std::max(total - 1, 1.0))};
}

/// Returns the statistics of all ranks' batches, put together in rank order (Chan et al. 1979). The host reads none of it: on
/// a GPU it would wait in each batch norm.
Statistics statistics_of(const Tensor& input, comm::ProcessGroup group) {
  const int64_t channels = input.size(1);
  const auto [variance, mean] = at::var_mean(to_sum(input), reduced_dims(input), /*correction=*/0);
  if (input.is_xla()) {
    return statistics_in_program(mean, variance, count_each(input), group);
  }
  const Tensor own = at::cat({count_of(input), mean.to(at::kDouble), variance.to(at::kDouble)});
  const Tensor all = at::empty({group.size(), own.numel()}, own.options());
  group.all_gather(all, own);
  const Tensor counts = all.narrow(1, 0, 1);
  const Tensor means = all.narrow(1, 1, channels);
  const Tensor variances = all.narrow(1, 1 + channels, channels);
  const Tensor total = counts.sum();
  const Tensor overall = (counts * means).sum(0) / total;
  const Tensor spread = (counts * (variances + (means - overall).square())).sum(0) / total;
  return {overall, spread, spread * (total / (total - 1).clamp_min(1))};
}

void move_towards(const OptionalTensor& running, const Tensor& value, double momentum) {
  if (running && running->defined()) {
    running->mul_(1 - momentum).add_(value.to(running->scalar_type()), momentum);
  }
}

ThreeTensors forward_over_ranks(const Tensor& input, const OptionalTensor& weight,
                                const OptionalTensor& bias, const OptionalTensor& running_mean,
                                const OptionalTensor& running_var, double momentum, double eps,
                                const Group& group) {
  check_device(input);
  const Statistics statistics = statistics_of(input, group->group());
  move_towards(running_mean, statistics.mean, momentum);
  move_towards(running_var, statistics.unbiased, momentum);
  const Tensor type_of = weight && weight->defined() ? *weight : input;
  const Tensor mean = statistics.mean.to(type_of.scalar_type());
  const Tensor inverse = (statistics.variance + eps).rsqrt().to(type_of.scalar_type());
  const Tensor output = std::get<0>(
      at::native_batch_norm(input, weight, bias, mean,
                            statistics.variance.to(type_of.scalar_type()), false, momentum, eps));
  return {output, mean, inverse};
}

/// The means over all ranks of the sums that this rank's batch has for each channel.
Tensor means_of(const Tensor& input, const Tensor& sum, const Tensor& product,
                comm::ProcessGroup group) {
  if (input.is_xla()) {
    const Tensor total = at::cat({sum.to(at::kFloat), product.to(at::kFloat)});
    comm::call_all_reduce({total}, group, ReduceOp::kMean);
    return total / count_each(input);
  }
  const Tensor total = at::cat({count_of(input), sum.to(at::kDouble), product.to(at::kDouble)});
  group.all_reduce(total, ReduceOp::kSum);
  return total.narrow(0, 1, 2 * sum.numel()) / total[0];
}

// Ioffe and Szegedy 2015, with the two means over the batches of all ranks. The gradients of weight
// and bias are this rank's; the strategy reduces them as all others.
ThreeTensors backward_over_ranks(const Tensor& grad_out, const Tensor& input,
                                 const OptionalTensor& weight, const Tensor& save_mean,
                                 const Tensor& save_invstd, std::array<bool, 3> output_mask,
                                 const Group& group) {
  check_device(input);
  const auto dims = reduced_dims(input);
  const Tensor x = to_sum(input), dy = to_sum(grad_out);
  const Tensor centred = x - by_channel(save_mean, x);
  const Tensor sum = dy.sum(dims);
  const Tensor product = (dy * centred).sum(dims);
  const Tensor means = means_of(input, sum, product, group->group());
  const Tensor mean = means.narrow(0, 0, sum.numel());
  const Tensor slope =
      means.narrow(0, sum.numel(), sum.numel()) * save_invstd.to(means.scalar_type()).square();
  ThreeTensors gradients;
  if (output_mask[0]) {
    Tensor scale = save_invstd;
    if (weight && weight->defined()) scale = scale * *weight;
    const Tensor of_input =
        (dy - by_channel(mean, x) - centred * by_channel(slope, x)) * by_channel(scale, x);
    std::get<0>(gradients) = of_input.to(input.scalar_type());
  }
  const auto type = weight && weight->defined() ? weight->scalar_type() : save_invstd.scalar_type();
  if (output_mask[1]) std::get<1>(gradients) = (product * save_invstd).to(type);
  if (output_mask[2]) std::get<2>(gradients) = sum.to(type);
  return gradients;
}

/// cuDNN's forms of it, which at::batch_norm calls on GPUs.
using FourTensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

/// The fourth result is memory for cuDNN's backward; it is empty here.
FourTensors cudnn_forward_over_ranks(const Tensor& input, const OptionalTensor& weight,
                                     const OptionalTensor& bias, const OptionalTensor& running_mean,
                                     const OptionalTensor& running_var, double momentum, double eps,
                                     const Group& group) {
  auto [output, mean, inverse] =
      forward_over_ranks(input, weight, bias, running_mean, running_var, momentum, eps, group);
  return {std::move(output), std::move(mean), std::move(inverse),
          at::empty({0}, input.options().dtype(at::kByte))};
}

ThreeTensors cudnn_backward_over_ranks(const Tensor& input, const Tensor& grad_out,
                                       const OptionalTensor& weight, const Tensor& save_mean,
                                       const Tensor& save_invstd, const Group& group) {
  return backward_over_ranks(grad_out, input, weight, save_mean, save_invstd, {true, true, true},
                             group);
}

/// An operator, and the one that takes its place in training mode.
struct OverRanks {
  c10::OperatorHandle op;
  c10::OperatorHandle over_ranks;
  std::optional<size_t> mode;     ///< the argument that says whether it is training; none: it is
  std::vector<size_t> arguments;  ///< arguments that the other operator takes, before the group
};

c10::OperatorHandle operator_of(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

class BatchNormHandler final : public graph::OperatorHandler {
 public:
  explicit BatchNormHandler(const comm::ProcessGroup& group)
      : group_(comm::NamedGroup::of(group)) {}

  void call(graph::OperatorCall& call) override {
    for (const OverRanks& other : over_ranks_) {
      if (call.op() != other.op) continue;
      torch::jit::Stack& stack = call.stack();
      const auto first = stack.end() - std::ssize(other.op.schema().arguments());
      if (other.mode && !first[static_cast<int64_t>(*other.mode)].toBool()) break;
      torch::jit::Stack arguments;
      for (const size_t i : other.arguments) arguments.push_back(first[static_cast<int64_t>(i)]);
      arguments.emplace_back(group_);
      stack.erase(first, stack.end());
      stack.insert(stack.end(), arguments.begin(), arguments.end());
      return call.proceed_as(other.over_ranks);
    }
    call.proceed();
  }

 private:
  c10::IValue group_;
  std::array<OverRanks, 4> over_ranks_ = {
      OverRanks{operator_of("aten::native_batch_norm"),
                operator_of("levin::sync_batch_norm"),
                5,
                {0, 1, 2, 3, 4, 6, 7}},
      OverRanks{operator_of("aten::native_batch_norm_backward"),
                operator_of("levin::sync_batch_norm_backward"),
                7,
                {0, 1, 2, 5, 6, 9}},
      OverRanks{operator_of("aten::cudnn_batch_norm"),
                operator_of("levin::sync_cudnn_batch_norm"),
                5,
                {0, 1, 2, 3, 4, 6, 7}},
      OverRanks{operator_of("aten::cudnn_batch_norm_backward"),
                operator_of("levin::sync_cudnn_batch_norm_backward"),
                std::nullopt,
                {0, 1, 2, 5, 6}}};
};

// These are operators so that a recorder of a step sees them, and their groups.
TORCH_LIBRARY_FRAGMENT(levin, library) {
  const auto define = [&](const std::string& parameters, const char* results) {
    library.def((parameters + comm::NamedGroup::parameter() + ") -> " + results).c_str());
  };
  const std::string forward =
      "(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, "
      "Tensor(b!)? running_var, float momentum, float eps, ";
  define("sync_batch_norm" + forward, "(Tensor, Tensor, Tensor)");
  define("sync_cudnn_batch_norm" + forward, "(Tensor, Tensor, Tensor, Tensor)");
  define(
      "sync_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor save_mean, "
      "Tensor save_invstd, bool[3] output_mask, ",
      "(Tensor, Tensor, Tensor)");
  define(
      "sync_cudnn_batch_norm_backward(Tensor input, Tensor grad_out, Tensor? weight, Tensor "
      "save_mean, Tensor save_invstd, ",
      "(Tensor, Tensor, Tensor)");
  constexpr auto kAnyDevice = c10::DispatchKey::CompositeExplicitAutograd;
  library.impl("sync_batch_norm", torch::dispatch(kAnyDevice, &forward_over_ranks));
  library.impl("sync_batch_norm_backward", torch::dispatch(kAnyDevice, &backward_over_ranks));
  library.impl("sync_cudnn_batch_norm", torch::dispatch(kAnyDevice, &cudnn_forward_over_ranks));
  library.impl("sync_cudnn_batch_norm_backward",
               torch::dispatch(kAnyDevice, &cudnn_backward_over_ranks));
}

}  // namespace

struct SyncBatchNormGuard::Interposed {
  explicit Interposed(const comm::ProcessGroup& group)
      : handler(std::make_unique<BatchNormHandler>(group)), scope(*handler) {}

  std::unique_ptr<graph::OperatorHandler> handler;
  graph::HandlerScope scope;
};

SyncBatchNormGuard::SyncBatchNormGuard(comm::ProcessGroup* group)
    : interposed_(group == nullptr ? nullptr : std::make_unique<Interposed>(*group)) {}

SyncBatchNormGuard::~SyncBatchNormGuard() = default;

}  // namespace levin
