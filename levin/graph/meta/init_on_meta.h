#pragma once
// init_on_meta: builds a module without memory for its parameters and buffers, so that each process
// of many can make its own part of a model that none of them could hold. Between the constructor
// and whoever places the parameters; materialize.h gives them values.
//
//   auto model = levin::init_on_meta([&] { return GPT(config); });  // milliseconds, no memory
//   levin::materialize(*model);                                     // as GPT(config) would be

#include <memory>
#include <type_traits>
#include <utility>

#include "levin/base/export.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

namespace detail {

/// The time in which this thread's tensors are made without memory. Within another one it is that.
class LEVIN_API MetaBuild {
 public:
  MetaBuild();
  ~MetaBuild();
  MetaBuild(const MetaBuild&) = delete;
  MetaBuild& operator=(const MetaBuild&) = delete;

  /// The module (or none) that came of it, whose parameters get their names.
  void finish(const torch::nn::Module* module);
  /// Within a handler: throws what was caught, or what that means here.
  [[noreturn]] void fail();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

template <class Result>
concept PointsToModule = requires(const Result& result) {
  { &*result } -> std::convertible_to<const torch::nn::Module*>;
  static_cast<bool>(result);
};

template <class Result>
const torch::nn::Module* module_of(const Result& result) {
  if constexpr (std::is_base_of_v<torch::nn::Module, Result>) {
    return &result;
  } else if constexpr (PointsToModule<Result>) {
    return static_cast<bool>(result) ? &*result : nullptr;
  } else {
    return nullptr;
  }
}

}  // namespace detail

/// Calls the function and returns what it returns: a module, its holder or pointer, or whatever
/// holds several. Tensors that it makes are on the device "meta": they have sizes, dtypes and
/// strides, and no memory; what the constructor does to them is written down, random draws too, and
/// LibTorch's generators are left as ordinary construction leaves them. What is made with a device
/// of its own (device(torch::kCPU); torch::tensor of a list) has memory and values, as under
/// PyTorch's torch.device("meta").
///
/// Throws what the function throws; Error "graph.meta.values" where it looks at the values of a
/// tensor without memory (item(), data_ptr(), an accessor, equal(), nonzero()), naming tensor and
/// line; "graph.meta.generator" where it moves a generator by hand between draws. Operators of
/// other threads are not seen.
template <class Function>
auto init_on_meta(Function&& function) {
  detail::MetaBuild build;
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Function>>) {
      std::forward<Function>(function)();
      build.finish(nullptr);
    } else {
      auto result = std::forward<Function>(function)();
      build.finish(detail::module_of(result));
      return result;
    }
  } catch (...) {
    build.fail();
  }
}

}  // namespace levin
