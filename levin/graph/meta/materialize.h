#pragma once
// materialize: gives the tensors of a module that init_on_meta built memory and values, one after
// another, whole or some rows of each. Between building and training; who divides a model over
// processes calls it unit by unit.
//
//   levin::materialize(*model->blocks, {.rows = [&](const std::string&, const at::Tensor& whole) {
//     return levin::RowRange{0, whole.size(0) / 2};
//   }});

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "levin/base/export.h"

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
