#pragma once
// What Accelerator::prepare may be given: variables, temporaries and pointers.

#include <memory>
#include <type_traits>
#include <utility>

#include "levin/module/jit_module.h"

namespace levin::detail {

/// Gives a JitModule for a torch::jit::Module, and any other argument as it is.
template <class T>
decltype(auto) as_prepared(T&& argument) {
  if constexpr (std::is_same_v<std::remove_cvref_t<T>, torch::jit::Module>) {
    return std::make_shared<JitModule>(argument);
  } else {
    return std::forward<T>(argument);
  }
}

/// The type of an object, or of what a pointer points to.
template <class T>
struct Object {
  using type = T;
};
template <class T>
  requires requires(T& pointer) { *pointer; }
struct Object<T> {
  using type = std::remove_cvref_t<decltype(*std::declval<T&>())>;
};

/// A pointer to the object: of a temporary, a pointer that is a temporary and a shared_ptr it owns
/// it; a variable must live for as long.
template <class T>
auto shared(T&& argument) {
  using Plain = std::remove_cvref_t<T>;
  using Shared = std::shared_ptr<typename Object<Plain>::type>;
  const auto leave = [](auto*) {};
  if constexpr (requires { *argument; }) {
    if constexpr (!std::is_pointer_v<Plain> && std::is_constructible_v<Shared, T&&>) {
      return Shared(std::forward<T>(argument));  // NOLINT: a temporary's pointer is taken over
    } else {
      return Shared(&*argument, leave);
    }
  } else if constexpr (std::is_lvalue_reference_v<T>) {
    return Shared(&argument, leave);
  } else {
    static_assert(std::is_move_constructible_v<Plain>,
                  "this cannot be moved: keep it in a variable, or give the pointer that "
                  "make_data_loader returned");
    return std::make_shared<Plain>(std::forward<T>(argument));
  }
}

}  // namespace levin::detail
