#pragma once
// ModernBERT (Warner et al. 2024): an encoder with rotary embeddings, norms before what is added, a gated
// MLP and windows that see to both sides.

#include <memory>
#include <string>

#include "levin/models/bodies/body.h"
#include "levin/models/config.h"

namespace levin::models {

/// Throws Error "models.config" for sizes that do not go together.
std::unique_ptr<Body> make_modernbert(torch::nn::Module& root, const std::string& prefix,
                                      const Config& config);

}  // namespace levin::models
