#pragma once
// Which files the weights of a model go to: one, or several of a bounded size and their index, named
// as Hugging Face's save_pretrained names them.
// Not for users.

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/state.h"
#include "levin/files/safetensors/layout.h"

namespace levin::detail {

struct WeightFile {
  std::string name;
  std::vector<files::TensorDescription> tensors;  ///< by name
};

/// MODEL.safetensors, or where the tensors take more than max_shard_bytes
/// MODEL-00001-of-0000N.safetensors and so on, in the order of their names. A tensor is in one
/// file, however large it is. Throws Error "checkpoint.shard" for max_shard_bytes below 1, and what
/// description_of throws.
std::vector<WeightFile> weight_files(const std::string& model, const State& weights,
                                     int64_t max_shard_bytes);

}  // namespace levin::detail
