#pragma once
// Checkpoints: weights in safetensors and the training state beside them, in one folder.
// The end of the data's way: what a run must not lose.
//
//   save_checkpoint("runs/step=100", {.weights = {{"model", state}}, .training = training});
//   Checkpoint checkpoint = load_checkpoint("runs/last");

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "levin/base/export.h"
#include "levin/base/state.h"

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

}  // namespace levin
