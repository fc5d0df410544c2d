#pragma once
// Tells whether a call of an operator here is its kernel and nothing else, so that other code may
// do its work.

#include "levin/base/export.h"

namespace levin::graph {

/// Returns whether operators of this thread go straight to their kernels: no gradients, no
/// autocast, no observers.
LEVIN_API bool has_plain_calls();

}  // namespace levin::graph
