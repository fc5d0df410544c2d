#pragma once
// CompiledReport: how often a compiled function was replayed, and why it was not.
// Trainer::compile_report() and CompiledFunction::report() return it.
//
//   const auto& report = trainer.compile_report();
//   std::cout << report.replayed << " steps replayed, " << report.refusals.size() << " refusals";

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::graph {

/// Statistics of one recording that is replayed.
struct ReplayReport {
  /// Operators that run in each replay; the next four fields count some of them.
  int64_t num_operators = 0;
  int64_t num_allocating = 0;  ///< operators that allocate their results
  int64_t num_captured = 0;  ///< operators that run in graphs captured by the device (CUDA graphs)
  int64_t num_matmuls = 0;   ///< matrix products that run in faster kernels than ATen's
  /// Copies of tensors that an operator overwrites while others still read them.
  int64_t num_copies = 0;
  int64_t num_views = 0;      ///< views, made once
  int64_t num_constants = 0;  ///< operators with a constant result, run once
  int64_t arena_bytes = 0;    ///< memory of all values
  int64_t needed_bytes = 0;   ///< peak of the memory that values need at one time
};

/// Counts of the calls of a compiled function so far.
struct CompiledReport {
  int64_t eager = 0;     ///< calls that ran eagerly
  int64_t recorded = 0;  ///< calls that were recorded
  int64_t replayed = 0;  ///< calls that were replayed
  int64_t checked = 0;   ///< calls that ran eagerly instead of a replay and equalled the recording
  std::vector<ReplayReport> replays = {};  ///< statistics of each recording that is replayed
  std::vector<std::string> refusals = {};  ///< reasons why the function runs eagerly
};

}  // namespace levin::graph

// StepValue: a number that the host computes in each step, as a tensor. A replayed step then sees
// the number of its own step: the warm-up of a coefficient, a falling temperature.
//
//   levin::StepValue beta{[this] { return std::min(1.0, global_step() / 1000.0); }};  // a member
//   ...
//   return reconstruction + beta() * divergence;                     // in training_step

namespace levin {

/// A number per step, as a scalar tensor that a replay updates. It is a handle: copies share the
/// tensor.
class LEVIN_API StepValue {
 public:
  /// value is called once in each step that runs or is replayed, before the step's operators. It
  /// may read levin's step, epoch or learning rate; these do not become conditions of the
  /// recording. Other data that it reads must outlive it. dtype is a floating-point dtype.
  explicit StepValue(std::function<double()> value, at::ScalarType dtype = at::kFloat);

  /// Returns the number of this step, a tensor of shape [] on the CPU, which operators on every
  /// device accept. It is the same tensor in each step, with new content.
  const at::Tensor& operator()() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace levin
