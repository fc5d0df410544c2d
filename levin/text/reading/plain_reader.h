#pragma once
// A tokenizer.json as programs write it, read several times faster than by a parser that tells of every value.

#include <string_view>

#include "levin/text/reading/model_data.h"
#include "levin/text/reading/text_memory.h"

namespace levin::text {

/// Puts the model's vocabulary and merges into `data` and everything else, with null in their places, into `root`,
/// a nlohmann::json, which headers know nothing of. False where the file is not as programs write it: it may be
/// wrong or only unusual, and a parser has to say.
bool read_plainly(std::string_view json, TextMemory& memory, ModelData& data, void* root);

}  // namespace levin::text
