#pragma once
// Weights in several files of a bounded size with an index beside them, as Hugging Face's
// save_pretrained and Accelerate's save_model write them.

#include <cstdint>
#include <filesystem>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/comm/process_group.h"

namespace levin {

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
