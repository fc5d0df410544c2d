#pragma once
// CompiledFunction: what Accelerator::compile gives, a training step as a function.

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
#include "levin/graph/compile/compile.h"
#include "levin/graph/record/trace.h"
#include "levin/module/parameters.h"

namespace levin {

class CompiledStep;
class Engine;

namespace detail {

/// The arguments of a call: tensors are new in each, and for each number there is a recording of its own.
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

/// A handle: copies share the recordings. Called with what the function takes: batches and tensors,
/// which are new in each call, and numbers, for each of which there is a recording of its own.
/// Returns what the function returns: a tensor, a vector or tuple of them, or nothing; from a
/// replay they know nothing of autograd.
template <class Function>
class CompiledFunction {
 public:
  CompiledFunction(Engine& engine, Function function)
      : calls_(engine), function_(std::move(function)) {}

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
