#pragma once
// Operators whose kernel is known before they are called: the dispatcher, which is asked by each
// call elsewhere, would find the CPU's.

#include "levin/graph/replay/replay_impl.h"

namespace levin::graph {

/// Whether its tensors are ordinary ones of the CPU, for which it has a kernel of its own. They are
/// the same in each call, and so is what comes of this.
bool is_direct(const Instruction& instruction);

/// Whether nobody stands between operators and their kernels in this thread: no handler, no mode,
/// no profiler. Below autograd and autocast.
bool nobody_looks_on();

/// Calls what is_direct() on the stack.
void call_direct(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace levin::graph
