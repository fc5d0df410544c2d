#pragma once
// Shapes of the results of operators for which LibTorch has no meta kernel.
// Not for users.

#include <ATen/core/ivalue.h>

#include <span>
#include <string_view>
#include <vector>

namespace levin::graph::fake {

/// Gives an operator's results on the meta device, from its arguments on the meta device.
using ShapeRule = std::vector<c10::IValue> (*)(std::span<const c10::IValue> arguments);

/// Returns the rule of an operator ("aten::relu", with its overload if it has one); nullptr if it
/// has none.
ShapeRule shape_rule(std::string_view name);

}  // namespace levin::graph::fake
