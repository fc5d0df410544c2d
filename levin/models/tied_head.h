#pragma once
// What a folder's files hold for a head that config.json ties to the embedding (tie_word_embeddings).

#include <string>

#include "levin/base/state.h"
#include "levin/models/config.h"
#include "levin/models/family.h"

namespace levin::models {

/// As transformers 5: a matrix of the head that equals the embedding, or stands in its place, is it; one
/// of other values is a head of its own, and tie_word_embeddings becomes false, with a warning. Biases
/// that are tied to each other go the same way. Throws Error "models.weights" where biases differ under a
/// matrix that is tied. Nothing where the config ties none.
void settle_tied_head(Config& config, State& weights, const Family& family,
                      const std::string& folder);

}  // namespace levin::models
