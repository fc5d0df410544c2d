#pragma once
// adapter_config.json: which of its keys are read, are harmless or are refused, and what they say. Not for users.

#include <filesystem>
#include <string>
#include <vector>

#include "levin/base/state.h"
#include "levin/models/lora.h"

namespace levin::lora {

/// Files of an adapter's folder.
constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kWeights = "adapter_model.safetensors";
/// The prefix of parameter names in the second file.
constexpr const char* kPrefix = "base_model.model.";

/// Throws Error "models.missing", and "models.lora.options" for what levin would compute otherwise than PEFT.
LoraOptions read_config(const std::filesystem::path& file);

/// The tensors of an adapter's folder, under PEFT's names. Throws Error "models.missing".
State read_weights(const std::filesystem::path& folder);

/// The part of adapter_config.json beside the options.
struct AdaptedNetwork {
  std::string base;                  ///< the folder or file that it was read from
  std::vector<std::string> targets;  ///< names of the adapted modules
  std::vector<std::string> whole;    ///< modules_to_save
  bool is_transposed = false;        ///< its matrices lie as [in, out]
  std::string task_type;             ///< PEFT's; empty: none
};
std::string config_text(const LoraOptions& options, const AdaptedNetwork& network);
/// The text for a model with an adapter.
std::string config_text(const models::Pretrained& net);

/// PEFT's task_type of a model.
std::string task_type_of(const models::Pretrained& net);

}  // namespace levin::lora
