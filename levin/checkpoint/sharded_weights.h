#pragma once
// Weights in several files of a bounded size with an index beside them, as Hugging Face's
// save_pretrained and Accelerate's save_model write them.

#include <cstdint>
#include <filesystem>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace levin {

/// Writes folder/model.safetensors, or where the tensors take more than max_shard_bytes
/// model-00001-of-0000N.safetensors and so on, in the order of their names, and
/// model.safetensors.index.json, which appears last; then removes such files of an earlier save. A
/// tensor is in one file, however large it is. Throws what save_weights throws, and Error
/// "checkpoint.shard" for max_shard_bytes below 1.
LEVIN_API void save_sharded_weights(const std::filesystem::path& folder, const State& weights,
                                    int64_t max_shard_bytes);

/// Such a folder's. Throws what load_weights throws, and Error "checkpoint.corrupt" for an index
/// that names a file or tensor that is not there.
LEVIN_API State load_sharded_weights(const std::filesystem::path& folder);

}  // namespace levin
