#pragma once
// CompiledFunction: a training step that is recorded once and replayed, as Accelerator::compile
// returns it.
//
//   auto step = accelerator.compile([&](const Batch& batch) { ... return loss; });
//   for (const auto& batch : loader) step(batch);
//   std::cout << step.report().replayed;

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "levin/base/export.h"
#include "levin/data/batch.h"
#include "levin/graph/record/trace.h"
#include "levin/graph/replay/replay.h"
#include "levin/module/parameters.h"

namespace levin {

class CompiledStep;
class Engine;

namespace detail {

/// The arguments of a call. Tensors may have new values in each call; each value of a number has
/// its own recording.
struct CompiledArguments {
  std::vector<NamedTensor> tensors = {};
  std::vector<std::variant<int64_t, double>> numbers = {};
};

/// The recordings of a function.
class LEVIN_API CompiledCalls {
 public:
  /// The engine must outlive it.
  explicit CompiledCalls(Engine& engine);
  std::vector<at::Tensor> operator()(const CompiledArguments& arguments,
                                     const std::function<std::vector<at::Tensor>()>& function);
  const graph::CompiledReport& report() const;

 private:
  std::shared_ptr<CompiledStep> step_;
};

}  // namespace detail

/// A compiled function (a handle): copies share the recordings. It is called with the function's
/// arguments: batches and tensors, whose values may be new in each call, and numbers; each value of
/// a number has its own recording. It returns the function's result: a tensor, a vector or tuple of
/// tensors, or nothing. Results of a replay have no autograd graph.
template <class Function>
class CompiledFunction {
 public:
  CompiledFunction(Engine& engine, Function function)
      : calls_(engine), function_(std::move(function)) {}  ///< Used by Accelerator::compile.

  /// Runs, records or replays the function.
  template <class... Args>
  auto operator()(const Args&... args) {
    using Result = std::invoke_result_t<Function&, const Args&...>;
    detail::CompiledArguments arguments;
    (add(args, arguments), ...);
    std::vector<at::Tensor> results =
        calls_(arguments, [&] { return detail::call_traced(function_, args...); });
    if constexpr (std::is_convertible_v<at::Tensor, Result>) {
      return Result(std::move(results.front()));
    } else if constexpr (std::is_same_v<std::vector<at::Tensor>, Result>) {
      return results;
    } else if constexpr (!std::is_void_v<Result>) {
      return as_tuple<Result>(results, std::make_index_sequence<std::tuple_size_v<Result>>());
    }
  }

  /// Returns how often the function was replayed, and why not.
  const graph::CompiledReport& report() const { return calls_.report(); }

 private:
  template <class Argument>
  static void add(const Argument& argument, detail::CompiledArguments& to) {
    if constexpr (std::is_same_v<Argument, Batch>) {
      for (const auto& [name, tensor] : argument) to.tensors.push_back({name, tensor});
    } else if constexpr (std::is_integral_v<Argument>) {
      to.numbers.emplace_back(static_cast<int64_t>(argument));
    } else if constexpr (std::is_arithmetic_v<Argument>) {
      to.numbers.emplace_back(static_cast<double>(argument));
    } else {
      static_assert(std::is_convertible_v<Argument, at::Tensor>,
                    "a compiled function takes batches, tensors and numbers");
      to.tensors.push_back({"input_" + std::to_string(to.tensors.size()), argument});
    }
  }
  template <class Tuple, size_t... Is>
  static Tuple as_tuple(std::vector<at::Tensor>& results, std::index_sequence<Is...>) {
    return Tuple(std::move(results.at(Is))...);
  }

  detail::CompiledCalls calls_;
  Function function_;
};

}  // namespace levin
