#include "levin/models/tied_head.h"

#include <ATen/ops/equal.h>

#include "levin/base/check.h"
#include "levin/base/log.h"

namespace levin::models {
namespace {

bool are_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  return a.const_data_ptr() == b.const_data_ptr() || at::equal(a, b);
}

void move(State& weights, const std::string& from, const std::string& to) {
  const at::Tensor tensor = weights.tensor(from);
  weights.erase(from);
  weights.set(to, tensor);
}

/// Where one of the two is missing, the other one's values stand for it.
void give_both(State& weights, const std::string& a, const std::string& b) {
  const bool has_a = weights.contains(a), has_b = weights.contains(b);
  if (has_a && !has_b) weights.set(b, weights.tensor(a).clone());
  if (has_b && !has_a) weights.set(a, weights.tensor(b).clone());
}

}  // namespace

void settle_tied_head(Config& config, State& weights, const Family& family,
                      const std::string& folder) {
  const TiedNames& names = family.tied;
  if (names.matrix.empty() || !config.boolean("tie_word_embeddings", false)) return;
  std::string embedding = joined(family.base_prefix, names.embedding);
  if (!weights.contains(embedding) && weights.contains(names.embedding))
    embedding = names.embedding;
  if (weights.contains(names.matrix)) {
    if (!weights.contains(embedding)) {
      move(weights, names.matrix, embedding);
    } else if (are_equal(weights.tensor(embedding), weights.tensor(names.matrix))) {
      weights.erase(names.matrix);
    } else {
      log::warn(
          "models: {} has tie_word_embeddings = true, and {} holds {} and {} of other values; the "
          "head is not tied, as in transformers, and save_pretrained writes tie_word_embeddings = "
          "false",
          config.origin(), folder, names.matrix, embedding);
      config.set_flag("tie_word_embeddings", false);
      if (!names.bias.empty()) give_both(weights, names.bias, names.second);
      return;
    }
  }
  if (names.bias.empty() || !weights.contains(names.second)) return;
  if (!weights.contains(names.bias)) {
    move(weights, names.second, names.bias);
    return;
  }
  LEVIN_CHECK(are_equal(weights.tensor(names.bias), weights.tensor(names.second)), "models.weights",
              "{} holds {} and {} of other values, which tie_word_embeddings = true makes one; "
              "take out the one that was not trained",
              folder, names.bias, names.second);
  weights.erase(names.second);
}

}  // namespace levin::models
