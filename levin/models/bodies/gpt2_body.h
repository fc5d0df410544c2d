#pragma once
// GPT-2 as a body: what gpt2.h trains, without its head, from a folder.

#include <memory>
#include <string>

#include "levin/models/bodies/body.h"
#include "levin/models/gpt2.h"

namespace levin::models {

/// Throws Error "models.gpt2.config".
std::unique_ptr<Body> make_gpt2(torch::nn::Module& root, const std::string& prefix,
                                const GPT2Config& config, bool is_causal = true);

}  // namespace levin::models
