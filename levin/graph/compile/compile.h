#pragma once
// CompiledReport: how often a compiled function was replayed, and why not.
// Trainer::compile_report() and CompiledFunction::report() give it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::graph {

/// The parts of a replay.
struct ReplayReport {
  int64_t num_operators = 0;   ///< run each time
  int64_t num_allocating = 0;  ///< of them, those that allocate their results
  int64_t num_captured = 0;    ///< of them, those that a device runs in graphs of its own
  int64_t num_matmuls = 0;     ///< of them, products by faster kernels than ATen calls
  int64_t num_copies = 0;      ///< of them, copies of what an operator writes and others still read
  int64_t num_views = 0;       ///< made once
  int64_t num_constants = 0;   ///< operators that always give the same, run once
  int64_t arena_bytes = 0;     ///< memory of all values
  int64_t needed_bytes = 0;    ///< the most of them that are needed at one time
};

/// The calls of a compiled function so far.
struct CompiledReport {
  int64_t eager = 0;
  int64_t recorded = 0;
  int64_t replayed = 0;
  int64_t checked = 0;  ///< called in a replay's place, and equal to the recording
  std::vector<ReplayReport> replays = {};  ///< of each recording that is replayed
  std::vector<std::string> refusals = {};  ///< why the function runs as it is
};

}  // namespace levin::graph

// StepValue: a number that the host computes in each step, as a tensor, so that a step that is
// replayed has each step's: a warm-up of a coefficient, a temperature that falls.
//
//   levin::StepValue beta{[this] { return std::min(1.0, global_step() / 1000.0); }};  // a member
//   ...
//   return reconstruction + beta() * divergence;                     // in training_step

namespace levin {

class LEVIN_API StepValue {
 public:
  /// value: is asked for once in each step that runs or is replayed, before its operators. It may
  /// ask levin for the step, the epoch or the learning rate without these becoming conditions of
  /// the recording; what it reads beside that must outlive it.
  explicit StepValue(std::function<double()> value, at::ScalarType dtype = at::kFloat);

  /// The number of this step: a tensor [] on the CPU, which operators of each device take. It is
  /// the same tensor in each step, which gets another content.
  const at::Tensor& operator()() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace levin
