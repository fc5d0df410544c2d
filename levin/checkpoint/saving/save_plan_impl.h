#pragma once
// SavePlan: which files a save consists of and where each tensor lies in them. One rank makes it,
// all have it, and each finds in it what it writes.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "levin/base/state.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/files/safetensors/layout.h"

namespace levin::detail {

/// A file of a model's weights.
struct WeightFile {
  std::string name;
  std::vector<files::TensorDescription> tensors;  ///< by name
};

/// MODEL.safetensors, or where the tensors take more than max_shard_bytes
/// MODEL-00001-of-0000N.safetensors and so on, in the order of their names, as Hugging Face's
/// save_pretrained names them. A tensor is in one file, however large it is. Throws Error
/// "checkpoint.shard" for max_shard_bytes below 1, and what description_of throws.
std::vector<WeightFile> weight_files(const std::string& model, const State& weights,
                                     int64_t max_shard_bytes);

struct PlannedFile {
  std::string name;
  std::string source;  ///< owner of the tensors: a model, or kTraining
  std::string head;    ///< the header, or the full text of a text file
  std::vector<files::SafetensorsLayout::Place> tensors = {};
  int64_t size = 0;
};

/// By PlannedFile::source: a rank's full tensors, and its shards of sharded ones.
using Sources = std::map<std::string, State>;

struct SavePlan {
  std::vector<PlannedFile> files;
  std::map<std::string, std::vector<std::string>> weights;  ///< by model, its files

  /// For the other ranks, and what they make of it.
  State to_state() const;
  static SavePlan of(const State& state);
};

/// Texts as a state, in their order, and back.
State state_of_texts(const std::vector<std::string>& texts);
std::vector<std::string> texts_in(const State& state);

/// No model has this name.
constexpr const char* kTraining = "/training";

/// A checkpoint's tensors. Throws what state_to_json throws.
Sources sources_of(const Checkpoint& checkpoint);

/// Throws Error "checkpoint.path" for weights that cannot be files of that name, "checkpoint.dtype",
/// "checkpoint.shard", "files.safetensors".
SavePlan plan_checkpoint(const Checkpoint& checkpoint, int64_t max_shard_bytes);

/// The plan of weight files only, in the order given.
SavePlan plan_weights(const std::string& model, const std::vector<WeightFile>& files);

/// The text of MODEL.safetensors.index.json, for a plan of weights alone.
std::string index_of(const SavePlan& plan);

using TensorPlace = files::SafetensorsLayout::Place;

/// Each tensor of the plan with its file's number.
void for_each_tensor(const SavePlan& plan,
                     const std::function<void(size_t file, const TensorPlace& place)>& visit);

/// nullptr where the rank has nothing of that name.
const State::Value* planned_value(const Sources& own, const PlannedFile& file,
                                  const TensorPlace& place);

/// Dense, and of the type that the plan has.
bool has_type_of(const at::Tensor& tensor, const TensorPlace& place);

/// Row-major elements in one dim, of memory that can be read in pieces.
at::Tensor elements_of(const at::Tensor& tensor);

/// Takes a contiguous tensor on the CPU.
std::span<const std::byte> bytes_of(const at::Tensor& tensor);

}  // namespace levin::detail
