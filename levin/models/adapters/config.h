#pragma once
// adapter_config.json: which of its keys are read, are harmless or are refused, and what they say. Not for users.

#include <filesystem>
#include <string>

#include "levin/models/lora.h"

namespace levin::lora {

/// Throws Error "models.missing", and "models.lora.options" for what levin would compute otherwise than PEFT.
LoraOptions read_config(const std::filesystem::path& file);

/// The text for a model with an adapter.
std::string config_text(const models::Pretrained& net);

/// PEFT's task_type of a model.
std::string task_type_of(const models::Pretrained& net);

}  // namespace levin::lora
