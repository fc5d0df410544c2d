#pragma once
// init_on_meta: builds a module without memory for its parameters and buffers, so that each process
// of many can make its own part of a model that none of them could hold. Between the constructor
// and whoever places the parameters; materialize.h gives them values.
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

// materialize: gives the tensors of a module that init_on_meta built memory and values, one after
// another, whole or some rows of each. Between building and training; who divides a model over
// processes calls it unit by unit.
//
//   levin::materialize(*model->blocks, {.rows = [&](const std::string&, const at::Tensor& whole) {
//     return levin::RowRange{0, whole.size(0) / 2};
//   }});

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

/// Rows [begin, end) of dim 0.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
};

enum class InitValues {
  /// Those that ordinary construction gives, bit for bit. Rows that are not wanted are skipped.
  kSeeded,
  /// What is random in a parameter is drawn from a seed, its name and the row: other numbers than
  /// ordinary construction's, the same for any division into rows. What is not random is the same.
  kByName,
  /// None: whoever calls loads them all. What is in memory is anything.
  kNone
};

struct MaterializeOptions {
  at::Device device = at::kCPU;
  InitValues values = InitValues::kSeeded;
  /// Of kByName; none: the seed that the default generator had when the module was built.
  std::optional<uint64_t> seed = {};
  /// Which rows of a tensor; none: all of them. Called with its full name and its whole.
  std::function<std::optional<RowRange>(const std::string& name, const at::Tensor& whole)> rows =
      {};
  /// Goes before names where what init_on_meta returned was no module: "encoder."
  std::string prefix = {};
};

/// Whether a parameter or buffer has no memory yet.
LEVIN_API bool is_on_meta(const torch::nn::Module& module);

/// Parameters and buffers without memory get it, and so do all tensors that share it with them
/// (tied weights, views, handles of the user's), and members that are not registered, if the
/// module was what init_on_meta returned. They stay the tensors that they were; hooks, names and
/// requires_grad are kept. No random generator is moved. Memory beyond the module's own is that of
/// one tensor, and of what its values are computed from. Modules may be given in any order, and
/// twice; tensors that have memory are only moved to the device.
///
/// Throws Error "graph.meta.lost" for a tensor that init_on_meta knows nothing of, "graph.meta.rows"
/// for rows outside of a tensor or of one that shares its memory with another shape,
/// "graph.meta.device" for the device meta. Nothing was changed then.
LEVIN_API void materialize(torch::nn::Module& module, const MaterializeOptions& options = {});

}  // namespace levin
