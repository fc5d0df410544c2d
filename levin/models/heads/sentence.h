#pragma once
// One vector a text, as sentence-transformers makes it: what its modules.json lists after the body.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "levin/models/inputs.h"

namespace levin::models {

/// Names of the file of the Transformer module: the first one, and those of older versions.
inline constexpr const char* kTransformerFiles[] = {
    "sentence_bert_config.json",       "sentence_roberta_config.json",
    "sentence_distilbert_config.json", "sentence_camembert_config.json",
    "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json"};

struct SentencePlan {
  /// How the vectors of a text's tokens become one; several poolings are joined one after another:
  /// cls, mean, max, mean_sqrt_len_tokens, weightedmean, lasttoken.
  std::vector<std::string> pooling = {"mean"};
  bool normalize = false;                 ///< to a length of 1
  bool include_prompt = true;             ///< tokens of a prompt count in pooling
  std::vector<std::string> folders = {};  ///< folders of the modules, within the model's folder

  /// Reads a folder with a modules.json; without one it returns the defaults, as
  /// sentence-transformers does. Throws Error "models.sentence" for modules that levin does not
  /// have.
  static SentencePlan from_folder(const std::filesystem::path& folder);
};

/// hidden: [B, T, width] -> float32 [B, width times poolings]
at::Tensor sentence_vectors(const SentencePlan& plan, const at::Tensor& hidden,
                            const Inputs& inputs);

}  // namespace levin::models
