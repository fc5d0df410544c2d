#pragma once
// fuse: chains of operators for which ATen has one operator become that one. Memory is read and
// written once instead of twice, which is what such chains take their time with.
//
//   fuse(graph);                     // results stay what they are, bit for bit
//   fuse(graph, {.exact = false});   // those too that round once where the chain rounds twice

#include <cstddef>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

struct FuseOptions {
  bool exact = true;  ///< only what gives the same bits (a NaN may change its sign)
};

/// Fuses where nobody else reads what is between the operators, and all tensors are of one floating
/// type, size and layout. Run it before rematerialize: operands live on until the last operator.
/// Returns how many chains went. Speed is that of the chain by that of the one, float32, 4 M
/// elements, one core; products of [256, 64] by [64, 128].
///
///   chain                      operator            bits                        speed
///   x + a / b                  addcdiv             equal in float32, float64   1.7
///   x + -a, x - -a             sub, add            equal                       2.1
///   min(max(x, low), high)     clamp               equal                       1.9
///   x + a * b                  addcmul             rounds once less            1.5
///   x + a * s, x - a * s       add, sub by alpha   rounds once less            2.0
///   x + (a - x) * s            lerp                other order                 2.9
///   1 / sqrt(x)                rsqrt               rounds once less            2.8
///   x * sigmoid(x)             silu                rounds once less            1.6
///   a mm b + c                 addmm               sums in another order       1.1
LEVIN_API size_t fuse(Graph& graph, const FuseOptions& options = {});

}  // namespace levin::graph
