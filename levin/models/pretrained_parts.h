#pragma once
// PretrainedParts: the parts of a Pretrained.
// Not for users.

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/models/family.h"
#include "levin/models/heads/sentence.h"
#include "levin/models/lora.h"
#include "levin/models/pretrained.h"

namespace levin::models {

struct PretrainedParts {
  Config config;
  Config generation;  // generation_config.json, for text-generation
  const Family* family = nullptr;
  Task task = Task::kFeatureExtraction;
  std::filesystem::path folder;  // folder of its files; empty: none
  std::unique_ptr<Body> body;
  std::unique_ptr<Head> head;  // none where the task has no step
  SentencePlan sentence;
  std::vector<std::string> drawn;
  std::unique_ptr<LoraOptions> lora;    // none where there is no adapter
  std::vector<std::string> lora_whole;  // modules that are trained beside it
  /// Their parameters, and the values that these had before.
  std::vector<std::pair<at::Tensor, at::Tensor>> lora_originals;
};

inline PretrainedParts& parts_of(Pretrained& net) { return *net.parts_; }
inline std::shared_ptr<Pretrained> make_pretrained(std::unique_ptr<PretrainedParts> parts) {
  return std::shared_ptr<Pretrained>(new Pretrained(std::move(parts)));
}

}  // namespace levin::models
