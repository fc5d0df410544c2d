#pragma once
// export_program: exports a C++ network as a program of torch.export. Python opens it, and can pass
// it on to ONNX, AOTInductor and ExecuTorch. load_exported loads it back into C++.
//
//   levin::export_program(net, {{"image", images}}, "net.pt2", {.dynamic = {{"image", 0}}});
//   # Python: program = torch.export.load("net.pt2"); program.module()(images)
//   # Python: torch.onnx.export(program, dynamo=True).save("net.onnx")

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/library.h>
#include <torch/nn/module.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/data/batch.h"
#include "levin/interchange/load_exported.h"
#include "levin/module/module.h"

// Internal: how export_program calls a module and converts its result. Not for users.

namespace levin::detail {

using ExportedForward = std::function<c10::IValue(const Batch&)>;

inline c10::IValue exported_value(const at::Tensor& tensor) { return tensor; }
inline c10::IValue exported_value(const c10::IValue& value) { return value; }
inline c10::IValue exported_value(const std::vector<at::Tensor>& tensors) {
  return c10::List<at::Tensor>(tensors);
}
inline c10::IValue exported_value(const ExportedOutput& output) { return output.value(); }
LEVIN_API c10::IValue exported_value(const Batch& named);
template <class... Items>
c10::IValue exported_value(const std::tuple<Items...>& items) {
  return std::apply(
      [](const Items&... each) {
        return c10::ivalue::Tuple::create(std::vector<c10::IValue>{exported_value(each)...});
      },
      items);
}
template <class First, class Second>
c10::IValue exported_value(const std::pair<First, Second>& items) {
  return exported_value(std::make_tuple(items.first, items.second));
}

/// Throws Error "interchange.export.input".
[[noreturn]] LEVIN_API void fail_forward(const Batch& batch);

template <size_t>
using ForwardArgument = const at::Tensor&;

template <class Pointer, size_t... Is>
constexpr bool takes_tensors(std::index_sequence<Is...>) {
  return requires(Pointer& module, ForwardArgument<Is>... tensors) {
    exported_value(module->forward(tensors...));
  };
}

template <class Pointer, size_t... Is>
c10::IValue call_forward(Pointer& module, const Batch& batch, std::index_sequence<Is...>) {
  return exported_value(module->forward(batch.fields()[Is].second...));
}

/// Calls forward with as many tensors as the batch has fields, of 1 to 8.
template <class Pointer, size_t Count = 1>
c10::IValue call_forward(Pointer& module, const Batch& batch) {
  using Net = std::remove_cvref_t<decltype(*module)>;
  constexpr size_t kMostArguments = 8;
  if constexpr (std::derived_from<Net, ExportedModule>) {
    std::vector<c10::IValue> arguments;
    for (const auto& [name, tensor] : batch.fields()) arguments.emplace_back(tensor);
    return module->run(arguments).value();
  } else if constexpr (Count <= kMostArguments) {
    using Places = std::make_index_sequence<Count>;
    if constexpr (takes_tensors<Pointer>(Places())) {
      if (batch.fields().size() == Count) return call_forward(module, batch, Places());
    }
    return call_forward<Pointer, Count + 1>(module, batch);
  } else if constexpr (requires { exported_value(module->forward(batch)); }) {
    return exported_value(module->forward(batch));
  } else if constexpr (std::derived_from<Net, Module>) {
    return module->predict_step(batch, /*batch_index=*/0);
  } else {
    fail_forward(batch);
  }
}

template <class Pointer>
ExportedForward exported_forward(Pointer module) {
  return [module](const Batch& batch) mutable { return call_forward(module, batch); };
}

}  // namespace levin::detail

namespace levin {

/// A dynamic dim of an input, whose size may differ from the example's, as torch.export.Dim.
struct DynamicDim {
  std::string input;  ///< name of the input: a field of the example
  int64_t dim = 0;    ///< dim of the input
  /// Dims of the same name have the same size. If the name is empty, dims of several inputs have
  /// one size if they stand at the same place and are equal in the example (the batch dim of tokens
  /// and mask).
  std::string name = {};
  std::optional<int64_t> min = {};  ///< unset: the smallest size at which the same operators run
  std::optional<int64_t> max = {};  ///< unset: no limit
  int64_t multiple_of = 1;          ///< sizes are multiples of it, as `8 * Dim("blocks")`
};

/// Options of export_program().
struct ExportProgramOptions {
  std::vector<DynamicDim> dynamic = {};  ///< dynamic dims; all other dims have the example's sizes
};

namespace detail {

LEVIN_API void write_program(torch::nn::Module& module, const ExportedForward& forward,
                             const Batch& example, const std::filesystem::path& path,
                             const ExportProgramOptions& options);
/// Returns the fields of the batch on which the module's result depends.
LEVIN_API Batch used_inputs(torch::nn::Module& module, const ExportedForward& forward,
                            const Batch& batch);

}  // namespace detail

/// Exports the computation of a module for the example, in the module's mode: eval() gives a
/// program for inference, train() one for training, with dropout and updates of running statistics.
/// The fields of the example are the arguments of forward by position, and their names become the
/// names of the program's arguments. A levin::Module without a forward of tensors is exported with
/// its predict_step. The file is written as a whole or not at all. torch.export.load of PyTorch
/// 2.11 and newer opens it.
///
/// Operators are recorded above autograd, as the code calls them. Numbers that the code computes
/// from dynamic sizes become formulas: forward runs at several sizes, and once with other values. A
/// branch on a size that none of these runs takes (`T > 512`) is not detected; give that dim its
/// min and max. A tensor that forward keeps from its first call (a mask) is a constant of the
/// program. Random number generators, parameters and buffers are restored afterwards.
///
/// Throws Error "interchange.export.input" for a dynamic dim that the example does not have and for
/// names that Python does not allow; "interchange.export.divided" for sharded parameters;
/// "interchange.export.size" if the module fails at a size between min and max, or computes a size
/// that is no single formula (sums, products, quotients by a number); "interchange.export.values"
/// if the operators that run depend on values of tensors or on earlier calls; and "files.write". It
/// also throws the errors of Capture: "interchange.export.read" for item() and similar functions,
/// "interchange.export.host_write", "interchange.export.function", "interchange.export.operator"
/// and "interchange.export.output".
template <class Pointer>
void export_program(Pointer module, const Batch& example, const std::filesystem::path& path,
                    const ExportProgramOptions& options = {}) {
  detail::write_program(*module, detail::exported_forward(module), example, path, options);
}

/// Same for a function that runs the module. It takes the batch and returns a tensor, a tuple, a
/// std::vector<at::Tensor>, or named results as a Batch.
///
///   const auto logits = [&](const levin::Batch& batch) { return net->forward(batch).logits; };
///   levin::export_program(net, logits, batch, "net.pt2");
template <class Pointer, class Function>
  requires std::is_invocable_v<Function, const Batch&>
void export_program(Pointer module, const Function& function, const Batch& example,
                    const std::filesystem::path& path, const ExportProgramOptions& options = {}) {
  const detail::ExportedForward forward = [&function](const Batch& batch) {
    return detail::exported_value(function(batch));
  };
  detail::write_program(*module, forward, example, path, options);
}

// register_operator: registers a custom operator at run time, as TORCH_LIBRARY does at load time,
// for programs from Python that call it. Call it before load_exported.
//
//   levin::register_operator("mylib::scaled(Tensor x, float alpha) -> Tensor",
//                            [](const at::Tensor& x, double alpha) { return x * alpha; });
//   auto net = levin::load_exported("net.pt2");  // calls torch.ops.mylib.scaled

namespace detail {
LEVIN_API void register_operator(const std::string& schema, torch::CppFunction&& function);
}  // namespace detail

/// Registers an operator. `schema` is "namespace::name(arguments) -> results" as in torch.library
/// of Python, with the argument names of the program. `function` is a function or lambda of
/// LibTorch's types (at::Tensor, double, int64_t, bool, std::optional, c10::List) with these
/// arguments. Gradients are those of the operators that it calls; for a backward of its own it
/// calls a torch::autograd::Function. The operator stays registered until the process ends, since
/// loaded programs refer to it. Throws Error "interchange.operator" for a schema that is not valid,
/// that the function does not match, or whose name is registered already.
template <class Function>
void register_operator(const std::string& schema, Function&& function) {
  detail::register_operator(schema, torch::CppFunction(std::forward<Function>(function)));
}

}  // namespace levin
