#pragma once
// repeated_product: products of matrices that come step after step outside of a replay, by the kernel that a
// replay would run. Sizes that have come often are tried once.

#include <ATen/core/Tensor.h>

#include "levin/base/export.h"

namespace levin::graph {

/// a b, or added + a b: at::mm(a, b) or at::addmm(added, a, b), bit for bit. Where somebody looks at operators
/// (has_plain_calls), or this machine has no other kernels, it is that call.
LEVIN_API at::Tensor repeated_product(const at::Tensor& a, const at::Tensor& b,
                                      const at::Tensor& added = {});

}  // namespace levin::graph
