#pragma once
// How export_program calls a module and takes what it returns.
// Not for users.

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <concepts>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/data/batch.h"
#include "levin/interchange/exported_module.h"
#include "levin/module/module.h"

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
