#pragma once
// export_program: a network of C++ as a program of torch.export, which Python opens, and with it
// ONNX, AOTInductor and ExecuTorch. load_exported is the way back.
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

// How export_program calls a module and takes what it returns.
// Not for users.

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

/// A dim of an input whose size may be another than the example's, as torch.export.Dim.
struct DynamicDim {
  std::string input;
  int64_t dim = 0;
  /// Dims of one name have one size. Empty: those of several inputs at the same place, with the same size
  /// in the example, have one (the batch of tokens and mask).
  std::string name = {};
  std::optional<int64_t> min = {};  ///< unset: the smallest at which the same operators run
  std::optional<int64_t> max = {};  ///< unset: no limit
  int64_t multiple_of = 1;          ///< as `8 * Dim("blocks")`
};

struct ExportProgramOptions {
  std::vector<DynamicDim> dynamic = {};
};

namespace detail {

LEVIN_API void write_program(torch::nn::Module& module, const ExportedForward& forward,
                             const Batch& example, const std::filesystem::path& path,
                             const ExportProgramOptions& options);
/// The fields of the batch that what the module computes depends on.
LEVIN_API Batch used_inputs(torch::nn::Module& module, const ExportedForward& forward,
                            const Batch& batch);

}  // namespace detail

/// Writes what the module computes for the example, in the mode it is in: eval() gives a program for
/// inference, train() one that trains, with its dropout and the writing of running statistics. The
/// example's fields are the arguments of forward by position, and their names those of the program. Where
/// there is no forward of tensors, it is predict_step of a levin::Module. The file is written as a
/// whole or not at all. torch.export.load of PyTorch 2.11 and newer opens it.
///
/// Operators are recorded above autograd, as the code calls them. Numbers that the code computes of dynamic
/// sizes become formulas: forward runs at several sizes, and once with other values. A branch by a size that
/// none of them takes (`T > 512`) is not seen: give that dim its min and max. What forward keeps of its first
/// call (a mask) is a constant of the program. Random numbers, parameters and buffers are afterwards as they
/// were.
///
/// Throws Error "interchange.export.input" for a dynamic dim that the example does not have and for names that
/// Python cannot have, "interchange.export.divided" for parameters that are divided over ranks,
/// "interchange.export.size" where the module does not run at a size between min and max, or computes one
/// that is no single formula of them (sums, products, quotients by a number),
/// "interchange.export.values" where what runs depends on values of tensors or on earlier calls, and what Capture
/// throws: "interchange.export.read" for item() and its like, "interchange.export.host_write",
/// "interchange.export.function", "interchange.export.operator", "interchange.export.output"; and Error
/// "files.write".
template <class Pointer>
void export_program(Pointer module, const Batch& example, const std::filesystem::path& path,
                    const ExportProgramOptions& options = {}) {
  detail::write_program(*module, detail::exported_forward(module), example, path, options);
}

/// The same of any function that runs the module: takes the batch, and returns a tensor, a tuple, a
/// std::vector<at::Tensor> or named results as a Batch.
///
///   levin::export_program(net, [&](const levin::Batch& batch) { return net->forward(batch).logits; }, batch, "net.pt2");
template <class Pointer, class Function>
  requires std::is_invocable_v<Function, const Batch&>
void export_program(Pointer module, const Function& function, const Batch& example,
                    const std::filesystem::path& path, const ExportProgramOptions& options = {}) {
  const detail::ExportedForward forward = [&function](const Batch& batch) {
    return detail::exported_value(function(batch));
  };
  detail::write_program(*module, forward, example, path, options);
}

// register_operator: an operator of one's own for programs of Python that call it, as TORCH_LIBRARY
// registers them, at run time. Before load_exported.
//
//   levin::register_operator("mylib::scaled(Tensor x, float alpha) -> Tensor",
//                            [](const at::Tensor& x, double alpha) { return x * alpha; });
//   auto net = levin::load_exported("net.pt2");  // calls torch.ops.mylib.scaled

namespace detail {
LEVIN_API void register_operator(const std::string& schema, torch::CppFunction&& function);
}  // namespace detail

/// schema: "namespace::name(arguments) -> results", as Python's torch.library has it; the names of arguments are
/// the program's. function: a function or lambda of LibTorch's types (at::Tensor, double, int64_t, bool,
/// std::optional, c10::List) with these arguments. Gradients are those of the operators that it calls; one with a
/// backward of its own calls a torch::autograd::Function. It stays registered while the process lives, since loaded
/// programs hold it. Throws Error "interchange.operator" for a schema that is none, that the function does not
/// have, or whose name is registered already.
template <class Function>
void register_operator(const std::string& schema, Function&& function) {
  detail::register_operator(schema, torch::CppFunction(std::forward<Function>(function)));
}

}  // namespace levin
