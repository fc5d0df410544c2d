#pragma once
// The facts about recorded steps that a user needs before turning them on, for --help. compiled.h
// and docs/compile.md say the same at more length.

#include <string_view>

namespace levin::graph {

inline constexpr std::string_view kReplayContract =
    "As with jax.jit and CUDA graphs, a replay runs the operators that were recorded, on the new "
    "batch and on weights, buffers, optimizer states and random generators as they are then, and "
    "no line of your code. Log tensors: a number of the host is that of the recording, and "
    "refused. A tensor that the step leaves in a member gets each step's value (keep a clone() of "
    "one); a list that grows is refused. A coefficient that changes, as a warm-up, is a tensor or "
    "a levin::StepValue. Coins are drawn by operators (torch::rand, then torch::where). Values "
    "that the host reads are compared in each replay; what else the host changes later is found "
    "by the next compile_check, and replays until then did what was recorded. See docs/compile.md";

}  // namespace levin::graph
