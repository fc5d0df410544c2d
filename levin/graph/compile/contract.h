#pragma once
// The facts about recorded steps that a user needs before turning them on, for --help. compiled.h
// and docs/compile.md say the same at more length.

#include <string_view>

namespace levin::graph {

inline constexpr std::string_view kReplayContract =
    "As with jax.jit and CUDA graphs, a replay runs the operators that were recorded, on the new "
    "batch and on the current weights, buffers, optimizer states and random generators, and no "
    "line of your code. Pass tensors to log(): a plain C++ number would stay as it was recorded, "
    "so "
    "it is refused. A tensor that the step assigns to a member holds each step's value (keep a "
    "clone() "
    "to hold it longer); a list that grows with each step is refused. For a coefficient that "
    "changes, such as a warm-up, use a tensor or a levin::StepValue. Make random choices with "
    "operators (torch::rand, then torch::where). Each replay compares the values that the host "
    "reads with the recorded ones; any other change on the host is found only by the next "
    "compile_check; replays until then run as if nothing had changed. See docs/compile.md";

}  // namespace levin::graph
