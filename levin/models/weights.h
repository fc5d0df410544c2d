#pragma once
// Weights between a folder of transformers and a network: which files there are, and under which names.

#include <torch/nn/module.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "levin/base/state.h"
#include "levin/models/family.h"
#include "levin/models/pretrained.h"

namespace levin::models {

/// Returns whether something exists at the path.
bool is_there(const std::filesystem::path& path);

/// The tensors of model.safetensors, its index, pytorch_model.bin or its index, by their names
/// there. Throws Error "models.missing" if none of these exists, and the errors of
/// load_sharded_weights.
State read_weights(const std::filesystem::path& folder);

/// Returns the digest of the files that read_weights reads, as 16 hexadecimal digits.
std::string digest_of_weights(const std::filesystem::path& folder);

struct Placing {
  std::string folder;          ///< for messages
  std::string base_prefix;     ///< prefix of the body's names in the network
  std::set<std::string> body;  ///< names of its parameters there
  bool may_redraw = false;     ///< a head of other sizes is drawn anew
  at::ScalarType dtype = at::kFloat;
  bool is_dtype_given = false;  ///< the user asked for that dtype: casts are no surprise
};

/// Gives the network's parameters the weights, cast to the dtype, and logs the casts. Returns the
/// names of parameters without weights, all of the head. Throws Error "models.weights".
std::vector<std::string> place_weights(torch::nn::Module& root, const Family& family,
                                       const Placing& placing, const State& weights);

/// Serves a head that config.json ties to the embedding (tie_word_embeddings).
///
/// As transformers 5: a matrix of the head that equals the embedding, or stands in its place, is it; one
/// of other values is a head of its own, and tie_word_embeddings becomes false, with a warning. Biases
/// that are tied to each other go the same way. Throws Error "models.weights" where biases differ under a
/// matrix that is tied. Nothing where the config ties none.
void settle_tied_head(Config& config, State& weights, const Family& family,
                      const std::string& folder);

}  // namespace levin::models
