#pragma once
// SavePlan: which files a save consists of and where each tensor lies in them. One rank makes it,
// all have it, and each finds in it what it writes.
// Not for users.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "levin/base/state.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/saving/weight_files_impl.h"
#include "levin/files/safetensors/layout.h"

namespace levin::detail {

struct PlannedFile {
  std::string name;
  std::string source;  ///< whose tensors: a model, or kTraining
  std::string head;    ///< the header, or the whole of a file of text
  std::vector<files::SafetensorsLayout::Place> tensors = {};
  int64_t size = 0;
};

/// By PlannedFile::source, what a rank has of it: whole tensors, and parts of those that are divided
/// over the ranks.
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

/// Of the files alone, in the order given.
SavePlan plan_weights(const std::string& model, const std::vector<WeightFile>& files);

/// The text of MODEL.safetensors.index.json, for a plan of weights alone.
std::string index_of(const SavePlan& plan);

}  // namespace levin::detail
