#pragma once
// A strategy learns from backward that a parameter's gradient is finished.

#include <ATen/core/Tensor.h>

#include <functional>

namespace levin::ddp {

/// Called after each backward's gradient was added to parameter.grad(), behind a hook of that kind
/// that the user has set.
void add_arrival_hook(const at::Tensor& parameter, std::function<void()> arrived);
/// The user's own hook stays.
void remove_arrival_hook(const at::Tensor& parameter);

}  // namespace levin::ddp
