#pragma once
// CompiledFunction: what Accelerator::compile gives, a training step as a function.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/accelerator/compiled/compiled_step.h"
#include "levin/data/batch.h"
#include "levin/graph/record/trace.h"

namespace levin {

/// A handle: copies share the recordings. Called with what the function takes: batches and tensors,
/// which are new in each call, and numbers, for each of which there is a recording of its own.
/// Returns what the function returns: a tensor, a vector or tuple of them, or nothing; from a
/// replay they know nothing of autograd.
template <class Function>
class CompiledFunction {
 public:
  CompiledFunction(Accelerator& accelerator, Function function)
      : step_(std::make_shared<CompiledStep>(accelerator, "the compiled function")),
        function_(std::move(function)) {}

  template <class... Args>
  auto operator()(const Args&... args) {
    using Result = std::invoke_result_t<Function&, const Args&...>;
    StepCall call;
    (add(args, call), ...);
    std::vector<at::Tensor> results =
        (*step_)(call, [&] { return detail::call_traced(function_, args...); });
    if constexpr (std::is_convertible_v<at::Tensor, Result>) {
      return Result(std::move(results.front()));
    } else if constexpr (std::is_same_v<std::vector<at::Tensor>, Result>) {
      return results;
    } else if constexpr (!std::is_void_v<Result>) {
      return as_tuple<Result>(results, std::make_index_sequence<std::tuple_size_v<Result>>());
    }
  }

  const graph::CompiledReport& report() const { return step_->compiled().report(); }

 private:
  template <class Argument>
  static void add(const Argument& argument, StepCall& call) {
    if constexpr (std::is_same_v<Argument, Batch>) {
      call.add(argument);
    } else if constexpr (std::is_arithmetic_v<Argument>) {
      call.guards.push_back({"an argument", argument});
    } else {
      static_assert(std::is_convertible_v<Argument, at::Tensor>,
                    "a compiled function takes batches, tensors and numbers");
      call.inputs.push_back({"input_" + std::to_string(call.inputs.size()), argument});
    }
  }
  template <class Tuple, size_t... Is>
  static Tuple as_tuple(std::vector<at::Tensor>& results, std::index_sequence<Is...>) {
    return Tuple(std::move(results.at(Is))...);
  }

  std::shared_ptr<CompiledStep> step_;
  Function function_;
};

}  // namespace levin
