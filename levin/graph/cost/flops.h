#pragma once
// FLOPs of matrix products, convolutions and attention, by the shapes of a call: the formulas of
// torch.utils.flop_counter. The cost model reads them for nodes of a graph, FlopCounter for
// operators that run.
//
//   FlopCounter counter;
//   loss = step(batch);            // also backward, in autograd's threads
//   counter.stop();
//   std::printf("%g FLOPs\n", *counter.flops());
// Not for users.

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::graph {

/// Shapes of a call of an operator, and the arguments on which its FLOPs depend.
struct CallShapes {
  std::vector<std::vector<int64_t>> inputs;  ///< of its first tensors
  std::vector<int64_t> output;               ///< of its first result
  bool is_transposed = false;                ///< of a convolution
  bool input_gradient = true;                ///< of convolution_backward
  bool weight_gradient = true;               ///< of convolution_backward
};

/// Returns whether the operator ("aten::mm") has a formula.
LEVIN_API bool has_flop_formula(std::string_view name);
/// Returns the FLOPs of a call of an operator that has a formula; a multiplication and an addition
/// are two.
LEVIN_API double flops_of_call(std::string_view name, const CallShapes& shapes);

/// Counts the FLOPs of the operators with a formula that the calling thread runs, and those of
/// backward in autograd's threads. It observes calls (at::RecordFunction) and changes nothing: no
/// operator runs twice, no random number is drawn. Operators that such an operator calls are not
/// counted again. One counter at a time counts in a process.
class LEVIN_API FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  /// Ends the counting. The thread that has made the counter calls it.
  void stop();
  /// Returns the FLOPs so far; nothing if another counter was running when this one was made.
  std::optional<double> flops() const;

 private:
  struct Count;

  std::shared_ptr<Count> count_;
  at::CallbackHandle handle_ = 0;
  bool is_running_ = false;
};

}  // namespace levin::graph
