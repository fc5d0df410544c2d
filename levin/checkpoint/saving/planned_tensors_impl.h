#pragma once
// The tensors of a plan, and what a rank has of each.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <span>

#include "levin/base/state.h"
#include "levin/checkpoint/saving/save_plan_impl.h"
#include "levin/files/safetensors/layout.h"

namespace levin::detail {

using TensorPlace = files::SafetensorsLayout::Place;

/// Each tensor of the plan with its file's number.
void for_each_tensor(const SavePlan& plan,
                     const std::function<void(size_t file, const TensorPlace& place)>& visit);

/// nullptr where the rank has nothing of that name.
const State::Value* planned_value(const Sources& own, const PlannedFile& file,
                                  const TensorPlace& place);

/// Dense, and of the type that the plan has.
bool has_type_of(const at::Tensor& tensor, const TensorPlace& place);

/// Row-major elements in one dim, of memory that can be read in pieces.
at::Tensor elements_of(const at::Tensor& tensor);

/// Of a contiguous tensor on the CPU.
std::span<const std::byte> bytes_of(const at::Tensor& tensor);

}  // namespace levin::detail
