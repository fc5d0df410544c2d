#pragma once
// init_on_meta: deferred initialization. It builds a module on the meta device, without memory for
// its parameters and buffers, so that each rank can later make its own shard of a model that no
// rank could hold. materialize (below) gives the parameters memory and values.
//
//   auto model = levin::init_on_meta([&] { return GPT(config); });  // milliseconds, no memory
//   levin::materialize(*model);                                     // as GPT(config) would be

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

namespace detail {

/// While an object of this class lives, tensors that this thread makes are on the meta device. An
/// object within another one has no effect of its own.
class LEVIN_API MetaBuild {
 public:
  MetaBuild();
  ~MetaBuild();
  MetaBuild(const MetaBuild&) = delete;
  MetaBuild& operator=(const MetaBuild&) = delete;

  /// Ends the build and names the parameters of the module that was built; nullptr for none.
  void finish(const torch::nn::Module* module);
  /// Is called in a catch block. It throws the caught exception, or an Error that explains it.
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

/// Calls a function and returns its result: a module, a module holder, a pointer to one, or an
/// object that contains several. Tensors that the function makes are on the meta device: they have
/// sizes, dtypes and strides, but no memory. The operators that initialize them, random draws
/// included, are recorded for materialize. LibTorch's random generators are left as ordinary
/// construction leaves them. A tensor that is made with an explicit device (device(torch::kCPU)) or
/// by torch::tensor of a list has memory and values, as under PyTorch's torch.device("meta"). It is
/// like Accelerate's init_empty_weights, but keeps the initialization.
///
/// Throws what the function throws. Throws Error "graph.meta.values", with the tensor and the line,
/// if the function reads values of a tensor without memory (item(), data_ptr(), an accessor,
/// equal(), nonzero()). Throws Error "graph.meta.generator" if it changes a random generator's
/// state between draws. Operators that other threads run are not recorded.
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

// materialize: gives the tensors of a module that init_on_meta built memory and values, one after
// another, in full or only some rows of each. It is called between building and training; sharding
// strategies call it for one unit (block) after another.
//
//   levin::materialize(*model->blocks, {.rows = [&](const std::string&, const at::Tensor& whole) {
//     return levin::RowRange{0, whole.size(0) / 2};
//   }});

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

/// Initial values that materialize gives.
enum class InitValues {
  /// The values of ordinary construction, bit for bit. Rows that are not wanted are skipped.
  kSeeded,
  /// Random values are drawn from a seed, the parameter's name and the row. They differ from those
  /// of ordinary construction, but do not depend on how the rows are split. Other values are the
  /// same.
  kByName,
  /// No values: the memory is uninitialized, and the caller loads all tensors (from a checkpoint).
  kNone
};

/// Options of materialize.
struct MaterializeOptions {
  at::Device device = at::kCPU;             ///< device of the tensors
  InitValues values = InitValues::kSeeded;  ///< initial values
  /// Seed of kByName. Empty: the seed of the default generator when the module was built.
  std::optional<uint64_t> seed = {};
  /// Returns the rows to make of a tensor; nothing means all rows. It is called with the tensor's
  /// full name and the full tensor (on the meta device). Empty: all rows of all tensors.
  std::function<std::optional<RowRange>(const std::string& name, const at::Tensor& whole)> rows =
      {};
  /// Called with the name and the tensor of each parameter and buffer once it has its values, before the
  /// next one is made: whoever keeps the values elsewhere (on a disk) may set the tensor to that.
  std::function<void(const std::string& name, const at::Tensor& tensor)> made = {};
  /// Prefix of the names, such as "encoder.", if init_on_meta did not return a module.
  std::string prefix = {};
};

/// Returns whether a parameter or buffer of the module has no memory yet.
LEVIN_API bool is_on_meta(const torch::nn::Module& module);

/// Gives memory and values to the parameters and buffers that have no memory, and to all tensors
/// that share memory with them (tied weights, views, tensors that the user holds). Members that are
/// not registered get memory too if init_on_meta returned this module. The tensors stay the same
/// objects; hooks, names and requires_grad are kept. No random generator changes its state. Besides
/// the module's memory, the call needs memory for one tensor and for the tensors from which its
/// values are computed. Modules may be materialized in any order, and twice: tensors that already
/// have memory are only moved to the device.
///
/// Throws Error "graph.meta.lost" for a tensor that init_on_meta did not make, "graph.meta.rows"
/// for rows outside a tensor and for rows of a tensor that shares its memory with another shape,
/// and "graph.meta.device" for the device meta. The module is unchanged then.
LEVIN_API void materialize(torch::nn::Module& module, const MaterializeOptions& options = {});

}  // namespace levin
