#pragma once
// Whether an operator that is called here is its kernel and nothing else, so that others may do its work.

#include "levin/base/export.h"

namespace levin::graph {

/// Operators of this thread go straight to their kernels: no gradients, no autocast, nobody who looks at them.
LEVIN_API bool has_plain_calls();

}  // namespace levin::graph
