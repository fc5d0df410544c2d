#pragma once
// The JSON of a program (models/model.json of an archive), made of recordings.
// Not for users.

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "levin/interchange/export/dynamic_sizes.h"
#include "levin/interchange/export/recordings.h"

namespace levin::interchange {

struct ProgramParts {
  const torch::nn::Module& module;
  const std::vector<ModuleTensor>& tensors;
  std::vector<std::string> input_names;  ///< Python's identifiers
  const std::vector<Symbol>& symbols;
};

/// Constants have the names constant_0, constant_1, ... there. Throws Error "interchange.export.size",
/// "interchange.export.operator".
std::string program_json(const Recordings& recordings, const ProgramParts& parts);

std::string constant_name(size_t index);

}  // namespace levin::interchange
