#include "levin/strategy/ddp/gradient_exchange.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <numeric>

#include "levin/base/check.h"
#include "levin/comm/operators.h"
#include "levin/strategy/ddp/agreement.h"
#include "levin/strategy/ddp/buckets.h"

namespace levin::ddp {

GradientExchange::GradientExchange(const comm::ProcessGroup& group, const torch::nn::Module& module,
                                   std::vector<NamedTensor> parameters, const DdpOptions& options)
    : group_(group), module_(&module), parameters_(std::move(parameters)), options_(options) {}

void GradientExchange::begin() {
  marks_.clear();
  for (const NamedTensor& parameter : parameters_) marks_.emplace_back(parameter.tensor);
}

void GradientExchange::reduce() {
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
}

/// Gradients that go at a time, in about the order in which backward gives them.
std::vector<std::vector<at::Tensor>> GradientExchange::buckets() const {
  constexpr double kMiB = 1 << 20;
  constexpr size_t kCacheLine = 64;
  std::vector<at::Tensor> gradients;
  std::vector<at::ScalarType> types;
  for (const NamedTensor& parameter : parameters_) {
    if (!parameter.tensor.requires_grad()) continue;
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined() && options_.find_unused_parameters) continue;
    LEVIN_CHECK(gradient.defined(), "strategy.ddp.unused",
                "{} got no gradient; use it in the loss, freeze it, or set --compile no (on XLA "
                "--ddp-find-unused-parameters), under which parameters may go unused",
                parameter.name);
    if (gradient.layout() != at::kStrided) gradient = gradient.to_dense();
    gradients.push_back(gradient);
    types.push_back(gradient.scalar_type());
  }
  std::vector<size_t> order(gradients.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  std::vector<std::vector<at::Tensor>> buckets;
  for (const BucketPlan& plan :
       plan_buckets(gradients, order, types, static_cast<int64_t>(options_.first_bucket_mb * kMiB),
                    static_cast<int64_t>(options_.bucket_cap_mb * kMiB))) {
    std::vector<at::Tensor>& bucket = buckets.emplace_back();
    for (const size_t index : plan.members) bucket.push_back(gradients[index]);
    // First what ends on a cache line: a replay lays them side by side.
    std::ranges::stable_partition(
        bucket, [](const at::Tensor& gradient) { return gradient.nbytes() % kCacheLine == 0; });
  }
  return buckets;
}

void Exchanges::add(const torch::nn::Module& module) {
  std::erase_if(all_, [&](const GradientExchange& one) { return &one.module() == &module; });
  std::vector<NamedTensor> taken;
  std::vector<const torch::nn::Module*> modules = {&module};
  for (const GradientExchange& one : all_) {
    taken.insert(taken.end(), one.parameters().begin(), one.parameters().end());
    modules.push_back(&one.module());
  }
  all_.emplace_back(group_, module, parameters_apart_from(taken, module), options_);
  buffers_ = Buffers(modules);
}

void Exchanges::clear() {
  all_.clear();
  buffers_ = {};
}

void Exchanges::begin() {
  for (GradientExchange& one : all_) one.begin();
}

void Exchanges::reduce() {
  for (GradientExchange& one : all_) one.reduce();
}

void Exchanges::agree_on_buffers() {
  if (options_.broadcast_buffers) buffers_.broadcast(group_);
}

}  // namespace levin::ddp
