#include "levin/strategy/arrivals.h"

#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace levin {
namespace {

using torch::autograd::PostAccumulateGradHook;
using torch::autograd::impl::post_acc_grad_hooks;

struct ArrivalHook final : PostAccumulateGradHook {
  ArrivalHook(std::function<void()> arrived, std::unique_ptr<PostAccumulateGradHook> before)
      : arrived(std::move(arrived)), before(std::move(before)) {}

  void operator()(const torch::autograd::Variable& tensor) override {
    if (before != nullptr) (*before)(tensor);
    arrived();
  }

  std::function<void()> arrived;
  std::unique_ptr<PostAccumulateGradHook> before;
};

}  // namespace

void add_arrival_hook(const at::Tensor& parameter, std::function<void()> arrived) {
  // A tensor that was registered frozen may never have met autograd, and can be unfrozen later.
  torch::autograd::impl::materialize_autograd_meta(parameter);
  auto before = std::move(post_acc_grad_hooks(parameter));
  torch::autograd::impl::set_post_acc_grad_hooks(
      parameter, std::make_unique<ArrivalHook>(std::move(arrived), std::move(before)));
}

void remove_arrival_hook(const at::Tensor& parameter) {
  auto& hook = post_acc_grad_hooks(parameter);
  auto* own = dynamic_cast<ArrivalHook*>(hook.get());
  if (own == nullptr) return;
  auto before = std::move(own->before);
  hook = std::move(before);
}

std::vector<size_t> agree_on_order(comm::ProcessGroup group, const std::vector<size_t>& arrived,
                                   const std::vector<size_t>& before) {
  std::vector<int64_t> order(arrived.begin(), arrived.end());
  std::vector<bool> known(before.size());
  for (const size_t index : arrived) known[index] = true;
  std::ranges::copy_if(before, std::back_inserter(order), [&](size_t i) { return !known[i]; });
  const at::Tensor agreed = at::tensor(order, at::kLong);
  group.broadcast(agreed, 0);
  const auto* first = agreed.const_data_ptr<int64_t>();
  return {first, first + agreed.numel()};
}

}  // namespace levin
