#pragma once
// Checkpoints: weights in safetensors and the training state beside them, in one folder.
// The end of the data's way: what a run must not lose.
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

/// On disk a folder of
///   NAME.safetensors             one for each of weights, or, where they are larger than a file
///                                may be, NAME-00001-of-0000N.safetensors and so on with
///                                NAME.safetensors.index.json: Hugging Face's names and sizes
///   training_state.json          the tree of scalars; {"$tensor": name} stands for a tensor
///   training_state.safetensors   its tensors, named by their path in the tree
///   manifest.json                format version, and of each of these its size and the XXH3-64 of
///                                its pieces, at most 16 MiB and of one tensor each, and of itself
struct Checkpoint {
  /// By file name; tensors only, or parts of tensors (TensorSlice).
  std::map<std::string, State> weights;
  State training;
};

struct SaveCheckpointOptions {
  bool replace = true;  ///< a checkpoint of that name; false: Error "files.replace" for it too
  int64_t max_shard_bytes = 5'000'000'000;  ///< of one file of weights, as save_pretrained's
  /// Where hosts share no disk: the ranks of each host write a folder there. It holds all that all
  /// ranks have, and of tensors that are divided over the ranks the rows of its own: enough for the
  /// same ranks to go on, else merge_checkpoints() joins them. As Accelerate's option of that name.
  bool save_on_each_node = false;
  /// Written behind training: see AsyncSaves. As torch.distributed.checkpoint's async_save and
  /// Lightning's AsyncCheckpointIO.
  bool async_save = false;
};

/// Called on every rank once an asynchronous save has ended: with nothing when the checkpoint is there, else with what
/// went wrong, the same on all ranks. Without one that is thrown.
using SaveThen = std::function<void(std::exception_ptr failure)>;

/// Writes to a temporary name, syncs, renames: the folder is there whole or not at all, and one of
/// that name from before stays until then. Tensors may be on any device and of any strides.
/// Only an empty folder is replaced, or one that is_checkpoint(): Error "files.replace" else.
/// Throws Error "files.write" (disk full, no permission), "checkpoint.dtype" (sparse or undefined
/// tensors too), "checkpoint.path" (weights that cannot be a file of that name, two tensors of one
/// path, keys that the format keeps for itself), "checkpoint.shard", "checkpoint.slice" (parts that
/// are not the whole); then nothing has changed.
/// For several ranks see CheckpointSave.
LEVIN_API void save_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                               const SaveCheckpointOptions& options = {});

/// Checks every byte against the manifest before anything is handed out; the tensors lie in memory
/// maps of the files. Only files of the folder itself are read that the manifest lists, no links.
/// Throws Error "checkpoint.missing", "checkpoint.corrupt", "checkpoint.version" (of a newer levin)
/// or "checkpoint.part" (of one host, and not all), which name the file, what is wrong with it and
/// what to do. To read some rows of it see CheckpointReader.
LEVIN_API Checkpoint load_checkpoint(const std::filesystem::path& folder);

/// Whether a folder is a checkpoint of levin and holds nothing else: a manifest that is whole, and
/// no file that it does not list. Its files are not read.
LEVIN_API bool is_checkpoint(const std::filesystem::path& folder);

/// Removes the files that a checkpoint's manifest lists, and the folder where it holds no others.
/// Throws what load_checkpoint throws for a folder without a manifest, and Error "files.write".
LEVIN_API void remove_checkpoint(const std::filesystem::path& folder);

/// Weights alone, from a checkpoint's folder, a folder as transformers saves it (load_sharded_weights), any
/// .safetensors file, or what PyTorch saved (load_torch_weights).
LEVIN_API State load_weights(const std::filesystem::path& path);
/// Writes a state's tensors to one file, which appears whole or not at all: where its name ends in .pt, .pth
/// or .bin as torch.save writes a state dict, else as safetensors. Names are the state's own. Tensors may be
/// on any device.
///
/// Python opens a file of torch.save's format with torch.load(weights_only=True), mmap=True too. It has an OrderedDict
/// of tensors on the CPU without requires_grad, of any dtype that Python has. Tensors that share memory (tied weights,
/// views) share it there, and nothing is written twice. Strides stay; a tensor that leaves gaps in its memory and
/// shares it with none is packed. In a safetensors file each tensor is row-major, and has its own copy.
///
/// Throws Error "files.write" (disk full, no permission), "checkpoint.dtype" (sparse, undefined or meta tensors too),
/// "checkpoint.slice" for parts of tensors (levin::full gathers them), "checkpoint.path" for a name that is not
/// UTF-8; then the file that was there is there still.
LEVIN_API void save_weights(const std::filesystem::path& file, const State& weights);
/// A module's parameters and buffers. In a file of torch.save's format tied weights have each of their names, as in
/// Python's state_dict(), so that load_state_dict(strict=True) takes them; in a safetensors file the first one.
LEVIN_API void save_weights(const std::filesystem::path& file, const torch::nn::Module& module);

// CheckpointReader: the tensors of a checkpoint, or some rows of them, whoever has written it.
// Files are mapped, and of them the pieces are checked that are touched, each once.
//
//   CheckpointReader reader("runs/last");
//   const at::Tensor rows = reader.rows("model", "embedding.weight", 1000, 2000);
//   const State own = reader.weights("model", rows_of_this_rank);

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

// Weights in several files of a bounded size with an index beside them, as Hugging Face's
// save_pretrained and Accelerate's save_model write them.

/// Writes folder/model.safetensors, or where the tensors take more than max_shard_bytes
/// model-00001-of-0000N.safetensors and so on, in the order of their names, and
/// model.safetensors.index.json, which appears last; then removes files of exactly such names of an
/// earlier save. The new ones lie beside the old ones until all of them are on the disk, and the
/// old index goes before the first file that it names is replaced: whenever the process dies, what
/// loads is one save's. A tensor is in one file, however large it is. Throws what save_weights
/// throws, and Error "checkpoint.shard" for max_shard_bytes below 1.
LEVIN_API void save_sharded_weights(const std::filesystem::path& folder, const State& weights,
                                    int64_t max_shard_bytes);

/// The same by all ranks of a group, each of which writes its part (CheckpointSave); of the options
/// max_shard_bytes and save_on_each_node count.
LEVIN_API void save_sharded_weights(const std::filesystem::path& folder, const State& weights,
                                    comm::ProcessGroup group, const SaveCheckpointOptions& options);

/// The weights of a folder: model.safetensors, or what model.safetensors.index.json names; where
/// neither is there pytorch_model.bin, or what pytorch_model.bin.index.json names, the files of
/// torch.save. Throws what load_weights throws, Error "checkpoint.missing" for a file that an index
/// names and that is not there, and "checkpoint.corrupt" for an index that names a tensor that its
/// file has not, or a file that is not of this folder. Such a file may be a link, as in Hugging Face's
/// cache.
LEVIN_API State load_sharded_weights(const std::filesystem::path& folder);

/// Whether a folder has one of these four files.
LEVIN_API bool holds_weights(const std::filesystem::path& folder);

/// The same of a folder that is no checkpoint of levin, nor what is left of one without its manifest.
LEVIN_API bool is_folder_of_weights(const std::filesystem::path& folder);

}  // namespace levin
