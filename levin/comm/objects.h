#pragma once
// A State as bytes and back, to be sent to other ranks.

#include <ATen/core/Tensor.h>

#include "levin/base/state.h"

namespace levin::comm {

/// A uint8 tensor (torch's pickle format).
at::Tensor bytes_of(const State& state);
State state_of(const at::Tensor& bytes);

}  // namespace levin::comm
