#pragma once
// Reads PyTorch's own checkpoints: files of torch.save, and folders of
// torch.distributed.checkpoint. save_weights writes the former.
//
//   State weights = load_weights("pytorch_model.bin");             // any of them, weights alone
//   State everything = load_torch_file("lightning.ckpt");
//   State sharded = load_distributed_checkpoint("step-1000");       // of any number of ranks
//
// Classes and functions that such a file names are never called, as with torch.load(weights_only=True).

#include <filesystem>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace levin {

/// A file of torch.save, before PyTorch 1.6 too, or of LibTorch's torch::save: dicts, lists and tuples as
/// children, whose keys are text or numbers ("0", "1" for those of a list), tensors on the CPU, numbers and
/// text; a whole module, of TorchScript too, as its parameters and buffers by name. None is left out, and
/// with a warning tensors that are sparse, nested, quantized or without values; torch.device and
/// torch.dtype are text. Tensors lie in the file's memory map and are not to be written
/// to; those that share a storage there share it here. Throws Error "files.read", and "checkpoint.torch"
/// for another file, a damaged one, or an object of any other class, which it names.
LEVIN_API State load_torch_file(const std::filesystem::path& file);

/// A folder of torch.distributed.checkpoint (dcp.save of PyTorch 2.3 or newer), whatever number of ranks
/// wrote it: the tree that was saved, each tensor whole, put together from its parts. Throws what
/// load_torch_file throws, and Error "checkpoint.torch" for parts that are missing or overlap and for
/// files outside the folder.
LEVIN_API State load_distributed_checkpoint(const std::filesystem::path& folder);

/// Loads the weights alone from either: the tensors of the tree, or of its child "state_dict"
/// (Lightning), "model_state_dict" or "model"; other values are skipped. Throws also Error
/// "checkpoint.weights" if there are no such tensors.
LEVIN_API State load_torch_weights(const std::filesystem::path& path);
/// Returns whether a path looks like one of these: a zip archive, a file of torch.save before
/// PyTorch 1.6, or a folder with ".metadata".
LEVIN_API bool is_torch_checkpoint(const std::filesystem::path& path);
/// Returns whether save_weights writes a file of that name as torch.save does: .pt, .pth or .bin.
LEVIN_API bool is_torch_file_name(const std::filesystem::path& file);

/// Casts floating-point tensors to another dtype. Tensors that share memory, such as tied weights,
/// share it afterwards.
LEVIN_API State cast_floating(const State& weights, at::ScalarType dtype);

}  // namespace levin
