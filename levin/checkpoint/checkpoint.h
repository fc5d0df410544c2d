#pragma once
// Checkpoints: a folder with model weights in safetensors files and the training state beside them.
// The Trainer and Accelerator write them, and resume from them.
//
//   save_checkpoint("runs/step=100", {.weights = {{"model", state}}, .training = training});
//   Checkpoint checkpoint = load_checkpoint("runs/last");

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/comm/process_group.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

/// Weights and training state. On disk they are a folder with these files:
///
/// - NAME.safetensors: one for each entry of weights. If the tensors are larger than a file may be,
///   the files are NAME-00001-of-0000N.safetensors and so on, with NAME.safetensors.index.json.
///   Names and sizes are the same as in Hugging Face's files.
/// - training_state.json: the tree of scalars; {"$tensor": name} stands for a tensor
/// - training_state.safetensors: its tensors, named by their path in the tree
/// - manifest.json: the format version; the size of each of these files and the XXH3-64 of each of
///   its pieces (a piece is at most 16 MiB and lies within one tensor); and the XXH3-64 of the rest
///   of the manifest
struct Checkpoint {
  /// Weights of each model, by file name: tensors only, or parts of tensors (TensorSlice).
  std::map<std::string, State> weights;
  State training;  ///< training state: optimizers, schedulers, counters
};

/// Options of a save.
struct SaveCheckpointOptions {
  /// Replace a checkpoint of the same name; with false an existing one is Error "files.replace".
  bool replace = true;
  int64_t max_shard_bytes = 5'000'000'000;  ///< most bytes in a weights file, as in save_pretrained
  /// For hosts that share no disk: the ranks of each host write a folder on that host. It holds
  /// everything that all ranks have in common and, for sharded tensors, only the rows of its own
  /// ranks. This is enough for the same ranks to resume; otherwise merge_checkpoints() joins the
  /// folders. It is Accelerate's option of the same name.
  bool save_on_each_node = false;
  /// Write in the background while training goes on (see AsyncSaves), like async_save of
  /// torch.distributed.checkpoint and Lightning's AsyncCheckpointIO.
  bool async_save = false;
};

/// Callback of an asynchronous save, called on every rank when the save has ended. `failure` is
/// null if the checkpoint was written; otherwise it is the error, which is the same on all ranks.
/// Without a callback the error is thrown.
using SaveThen = std::function<void(std::exception_ptr failure)>;

/// Writes a checkpoint from one process; for several ranks see CheckpointSave. It writes to a
/// temporary name, syncs, and renames: the folder appears as a whole or not at all, and an older
/// one of that name stays until then. Tensors may be on any device and have any strides. Only an
/// empty folder or a checkpoint (is_checkpoint()) is replaced; anything else is Error
/// "files.replace". Throws Error "files.write" (disk full, no permission), "checkpoint.dtype" (a
/// dtype that safetensors lacks, or a sparse or undefined tensor), "checkpoint.path" (a name in
/// weights that is not a valid file name, two tensors with the same path, or keys that the format
/// reserves), "checkpoint.shard" (max_shard_bytes below 1), and "checkpoint.slice" (parts that do
/// not make up the full tensor). After an error nothing has changed.
LEVIN_API void save_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                               const SaveCheckpointOptions& options = {});

/// Loads a checkpoint. Every byte is checked against the manifest before anything is returned. The
/// tensors are memory maps of the files. Only files in the folder that the manifest lists are read,
/// and no links. Throws Error "checkpoint.missing", "checkpoint.corrupt", "checkpoint.version"
/// (written by a newer levin) or "checkpoint.part" (the folder of one of several hosts, which does
/// not hold everything). The messages name the file, what is wrong with it and what to do. To read
/// only some rows see CheckpointReader.
LEVIN_API Checkpoint load_checkpoint(const std::filesystem::path& folder);

/// Returns whether a folder is a checkpoint of levin and nothing else: its manifest is valid and
/// lists all files of the folder. The files themselves are not read.
LEVIN_API bool is_checkpoint(const std::filesystem::path& folder);

/// Removes the files that a checkpoint's manifest lists, and the folder if it holds no other files.
/// Throws the error of load_checkpoint() for a folder without a manifest, and Error "files.write".
LEVIN_API void remove_checkpoint(const std::filesystem::path& folder);

/// Loads weights only, from a checkpoint folder, a folder that transformers wrote
/// (load_sharded_weights), any .safetensors file, or a file of torch.save (load_torch_weights).
LEVIN_API State load_weights(const std::filesystem::path& path);
/// Writes the tensors of a state to one file, which appears as a whole or not at all. A file name
/// that ends in .pt, .pth or .bin selects the format of torch.save (a state dict), any other name
/// selects safetensors. Tensors keep the names that they have in the state, and may be on any
/// device.
///
/// Python opens a file of torch.save's format with torch.load(weights_only=True), also with
/// mmap=True. It gets an OrderedDict of CPU tensors without requires_grad. Every dtype
/// that PyTorch has in Python can be written. Tensors that share memory (tied weights, views) share
/// it there too, and nothing is written twice. Strides are kept, but a tensor that has gaps in its
/// memory, and shares this memory with no other tensor, is packed. In a safetensors file each
/// tensor is row-major and has its own copy.
///
/// Throws Error "files.write" (disk full, no permission), "checkpoint.dtype" (a dtype that the
/// format lacks, or a sparse, undefined or meta tensor), "checkpoint.slice" for parts of tensors
/// (levin::full gathers them), and "checkpoint.path" for a name that is not UTF-8. After an error
/// the previous file is still there.
LEVIN_API void save_weights(const std::filesystem::path& file, const State& weights);
/// Writes the parameters and buffers of a module. In a file of torch.save's format tied weights
/// appear under each of their names, as in Python's state_dict(), so that
/// load_state_dict(strict=True) accepts them. In a safetensors file they appear under their first
/// name.
LEVIN_API void save_weights(const std::filesystem::path& file, const torch::nn::Module& module);

// CheckpointReader: reads tensors of a checkpoint, or some rows of them, for any number of ranks.
// Files are memory-mapped. Only the pieces that are used are checked, each of them once.
//
//   CheckpointReader reader("runs/last");
//   const at::Tensor rows = reader.rows("model", "embedding.weight", 1000, 2000);
//   const State own = reader.weights("model", rows_of_this_rank);

/// Returns the rows to read of a tensor, given its name (or path) and its sizes; nullopt for the
/// full tensor.
using WantedRows = std::function<std::optional<RowRange>(std::string_view name,
                                                         const std::vector<int64_t>& sizes)>;

/// Returns the rows that this rank holds of a sharded parameter (shard/sharded_tensor.h), or
/// nullopt for a parameter that is not sharded.
LEVIN_API std::optional<RowRange> rows_of(const at::Tensor& leaf);

/// Reads a checkpoint tensor by tensor. CheckpointReader is a handle: copies share the memory maps
/// and the record of checked pieces. Tensors lie in the maps and keep them alive, so a folder that
/// is replaced or removed meanwhile stays readable as it was. Not thread-safe. The constructor and
/// all functions that read throw the errors of load_checkpoint(), and return nothing then.
class LEVIN_API CheckpointReader {
 public:
  /// Opens a checkpoint folder and reads its manifest.
  explicit CheckpointReader(const std::filesystem::path& folder);

  /// Names of the models: the keys of Checkpoint::weights.
  std::vector<std::string> models() const;
  /// Names of a model's tensors in alphabetical order. Throws Error "checkpoint.weights" if there
  /// is no such model.
  std::vector<std::string> names(const std::string& model);
  /// Sizes of a tensor. Throws Error "checkpoint.weights" if there is no such model or tensor.
  std::vector<int64_t> sizes(const std::string& model, const std::string& name);

  /// Reads a full tensor. Throws Error "checkpoint.weights" if there is no such model or tensor.
  at::Tensor tensor(const std::string& model, const std::string& name);
  /// Reads rows [begin, end) of a tensor. Throws Error "checkpoint.weights" if there is no such
  /// model or tensor, and "checkpoint.rows" if it does not have these rows.
  at::Tensor rows(const std::string& model, const std::string& name, int64_t begin, int64_t end);

  /// Reads all tensors of a model. A tensor for which `wanted` returns rows becomes a TensorSlice.
  State weights(const std::string& model, const WantedRows& wanted = {});
  /// Reads the training state. `wanted` gets the paths of the tensors in it, such as
  /// "optimizers/0/parameters/net.weight/exp_avg".
  State training(const WantedRows& wanted = {});
  /// Reads the training state without its tensors.
  State training_scalars();

  /// Checks every byte of all files of the folder.
  void check_all();
  /// Number of bytes read so far: those of the pieces that were checked.
  int64_t bytes_read() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Sharded weights: several files of a limited size with an index beside them, in the format of
// transformers' save_pretrained and Accelerate's save_model.
//
//   save_sharded_weights("out", weights, /*max_shard_bytes=*/5'000'000'000);
//   const State weights = load_sharded_weights("out");

/// Writes folder/model.safetensors. If the tensors take more than max_shard_bytes, it writes
/// model-00001-of-0000N.safetensors and so on, in the order of the tensors' names, and
/// model.safetensors.index.json. All new files are written beside the old ones first. Then the old
/// index is removed, the new files replace the old ones, the new index appears, and other files of
/// an earlier save with such names are removed. So if the process dies, a
/// load gets the tensors of one save, or fails with "checkpoint.missing", but never a mixture. A
/// tensor is never split, however large it is. Throws the errors of save_weights(), and Error
/// "checkpoint.shard" for max_shard_bytes below 1.
LEVIN_API void save_sharded_weights(const std::filesystem::path& folder, const State& weights,
                                    int64_t max_shard_bytes);

/// Same, called by all ranks of a process group. Each rank writes its part (CheckpointSave).
/// Only the options max_shard_bytes and save_on_each_node have an effect.
LEVIN_API void save_sharded_weights(const std::filesystem::path& folder, const State& weights,
                                    comm::ProcessGroup group, const SaveCheckpointOptions& options);

/// Loads the weights of a folder: the files that model.safetensors.index.json names or, without
/// that index, model.safetensors. If neither exists, it loads the files of torch.save in the same
/// way: pytorch_model.bin.index.json, or pytorch_model.bin. A file may be a link, as in Hugging
/// Face's cache. Throws the errors of load_weights(), Error "checkpoint.missing" if a file that the
/// index names does not exist, and "checkpoint.corrupt" if the index names a tensor that its file
/// does not have, or a file outside the folder.
LEVIN_API State load_sharded_weights(const std::filesystem::path& folder);

/// Returns whether a folder has model.safetensors, pytorch_model.bin or the index of one of them.
LEVIN_API bool holds_weights(const std::filesystem::path& folder);

/// Same as holds_weights(), but false for a checkpoint of levin, also for an incomplete one whose
/// manifest is missing.
LEVIN_API bool is_folder_of_weights(const std::filesystem::path& folder);

}  // namespace levin
