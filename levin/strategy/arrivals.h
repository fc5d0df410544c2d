#pragma once
// Gradients that backward has finished: hooks that tell a strategy of each, and the order in which
// ranks send them. The part of an exchange overlapping backward that ddp, fsdp and zero share.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "levin/comm/process_group.h"

namespace levin {

/// Called after each backward's gradient was added to parameter.grad(), behind a hook of that kind
/// that the user has set.
void add_arrival_hook(const at::Tensor& parameter, std::function<void()> arrived);
/// The user's own hook stays.
void remove_arrival_hook(const at::Tensor& parameter);

/// Returns the order in which gradients arrived on rank 0, then the others as they were in `before`, which holds each
/// of them once. All ranks call it: the exchanges must be the same everywhere.
std::vector<size_t> agree_on_order(comm::ProcessGroup group, const std::vector<size_t>& arrived,
                                   const std::vector<size_t>& before);

}  // namespace levin
