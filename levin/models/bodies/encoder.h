#pragma once
// The encoder of BERT and its kin (Devlin et al. 2018): learnt positions, norms after what is added,
// attention to both sides. Its options and names make it BERT, RoBERTa, XLM-RoBERTa or DistilBERT.

#include <cstdint>
#include <memory>
#include <string>

#include "levin/models/bodies/body.h"

namespace levin::models {

struct EncoderOptions {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t max_position_embeddings = 0;
  /// The embedding of positions begins as sines and cosines (Vaswani et al. 2017), not as random numbers.
  bool sinusoidal_positions = false;
  int64_t type_vocab_size = 0;  ///< kinds of texts; 0: their embedding is not there
  std::string hidden_act = "gelu";
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  int64_t padding_idx = -1;  ///< row of the tokens' embedding that gets no gradient; -1: none
  /// RoBERTa's: positions of tokens that are not padding, from padding_idx + 1 on; padding has
  /// padding_idx, whose embedding gets no gradient.
  bool positions_skip_padding = false;

  /// Paths within a block; the defaults are BERT's.
  struct Names {
    std::string blocks = "encoder.layer";
    std::string query = "attention.self.query";
    std::string key = "attention.self.key";
    std::string value = "attention.self.value";
    std::string output = "attention.output.dense";
    std::string attention_norm = "attention.output.LayerNorm";
    std::string mlp_in = "intermediate.dense";
    std::string mlp_out = "output.dense";
    std::string mlp_norm = "output.LayerNorm";
  } names;
  /// Dropout of what attention adds; DistilBERT has none.
  bool attention_output_dropout = true;
};

/// Throws Error "models.config" for sizes that do not go together.
std::unique_ptr<Body> make_encoder(torch::nn::Module& root, const std::string& prefix,
                                   const EncoderOptions& options);

}  // namespace levin::models
