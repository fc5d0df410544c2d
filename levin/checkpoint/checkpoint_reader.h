#pragma once
// CheckpointReader: the tensors of a checkpoint, or some rows of them, whoever has written it.
// Files are mapped, and of them the pieces are checked that are touched, each once.
//
//   CheckpointReader reader("runs/last");
//   const at::Tensor rows = reader.rows("model", "embedding.weight", 1000, 2000);
//   const State own = reader.weights("model", rows_of_this_rank);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace levin {

/// Rows [begin, end) of a tensor: of its first dim.
struct Rows {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Which rows of a tensor are wanted, by its name or path and its sizes; none: the whole of it.
using WantedRows =
    std::function<std::optional<Rows>(std::string_view name, const std::vector<int64_t>& sizes)>;

/// Those that this rank has of a parameter that is divided over ranks (shard/leaf.h); none: the whole
/// of it.
LEVIN_API std::optional<Rows> rows_of(const at::Tensor& leaf);

/// A handle: copies share the maps and what was checked. Tensors lie in the maps and keep them, so
/// that a folder that is replaced or removed meanwhile stays readable here, as it was.
/// Not thread-safe. Reading throws what load_checkpoint() throws, and nothing is handed out then.
class LEVIN_API CheckpointReader {
 public:
  explicit CheckpointReader(const std::filesystem::path& folder);

  std::vector<std::string> models() const;
  /// Of a model's tensors, in the order of the alphabet. Throws Error "checkpoint.weights" for a
  /// model that there is not.
  std::vector<std::string> names(const std::string& model);
  std::vector<int64_t> sizes(const std::string& model, const std::string& name);

  /// Throw Error "checkpoint.weights" for a tensor that there is not, and "checkpoint.rows" for rows
  /// that it has not.
  at::Tensor tensor(const std::string& model, const std::string& name);
  at::Tensor rows(const std::string& model, const std::string& name, int64_t begin, int64_t end);

  /// All tensors of a model; those of which rows are wanted as TensorSlice.
  State weights(const std::string& model, const WantedRows& wanted = {});
  /// The training state; wanted is asked with the tensors' paths in it, as
  /// "optimizers/0/parameters/net.weight/exp_avg".
  State training(const WantedRows& wanted = {});
  /// The same without its tensors.
  State training_scalars();

  /// Every byte of the folder's files.
  void check_all();
  /// Bytes of the pieces that were checked so far, which are all that were read.
  int64_t bytes_read() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace levin
