#include "levin/models/fine_tune/window_mean.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "levin/comm/operators.h"

namespace levin::models {

void WindowMean::add(const Values& values, const at::Tensor& count) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> scalars;
  for (const auto& [name, value] : values) scalars.push_back(value.detach().to(at::kFloat));
  const at::Tensor now = at::stack(scalars);
  if (!means_.defined() || means_.sizes() != now.sizes() || means_.device() != now.device()) {
    names_.clear();
    for (const auto& [name, value] : values) names_.push_back(name);
    // They start on the CPU: on XLA they become inputs of the first step's program too, so that all
    // steps are one program.
    const at::TensorOptions here = now.options().device(at::kCPU);
    means_ = at::zeros(now.sizes(), here).to(now.device());
    count_ = at::zeros({}, here).to(now.device());
  }
  // A mean that runs along: that of one batch is the batch's own value, to the bit.
  // A count on the host comes without waiting for what the device still does.
  const at::Tensor weight = count.to(now.device(), at::kFloat, /*non_blocking=*/true);
  count_.add_(weight);
  means_.add_((now - means_) * (weight / count_.clamp_min(1)));
}

WindowMean::Values WindowMean::take(const comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  at::Tensor means = means_.clone();
  if (group.size() > 1) {
    const at::Tensor sums = at::cat({means * count_, count_.view({1})});
    comm::call_all_reduce({sums}, group, ReduceOp::kSum);
    const int64_t last = sums.size(0) - 1;
    means = sums.narrow(0, 0, last) / sums.select(0, last).clamp_min(1);
  }
  Values values;
  for (size_t i = 0; i < names_.size(); ++i)
    values.emplace_back(names_[i], means.select(0, static_cast<int64_t>(i)));
  means_.zero_();
  count_.zero_();
  return values;
}

}  // namespace levin::models
