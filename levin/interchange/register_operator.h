#pragma once
// register_operator: an operator of one's own for programs of Python that call it, as TORCH_LIBRARY registers
// them, at run time. Before load_exported.
//
//   levin::register_operator("mylib::scaled(Tensor x, float alpha) -> Tensor",
//                            [](const at::Tensor& x, double alpha) { return x * alpha; });
//   auto net = levin::load_exported("net.pt2");  // calls torch.ops.mylib.scaled

#include <torch/library.h>

#include <string>
#include <utility>

#include "levin/base/export.h"

namespace levin {

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
