#pragma once
// The JSON of a program (models/model.json of an archive), made of recordings.
// Not for users.

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "levin/interchange/export/record/recordings.h"
#include "levin/interchange/export/sizes/dynamic_sizes.h"

namespace levin::interchange {

struct ProgramParts {
  const torch::nn::Module& module;
  const std::vector<ModuleTensor>& tensors;
  std::vector<std::string> input_names;  ///< Python's identifiers
  const std::vector<Symbol>& symbols;
  std::string constants;  ///< prefix of the constants' names
};

/// Throws Error "interchange.export.size",
/// "interchange.export.operator".
std::string program_json(const Recordings& recordings, const ProgramParts& parts);

/// "constant_", or what no tensor and no child of the module begins with: constants are attributes beside
/// them.
std::string constant_prefix(const torch::nn::Module& module,
                            const std::vector<ModuleTensor>& tensors);
/// "constant_0"
std::string constant_name(const std::string& prefix, size_t index);

}  // namespace levin::interchange
