#pragma once
// The decoder of most language models of today: rotary embeddings, grouped heads, a gated MLP; its options
// make it Llama, Mistral, Qwen, SmolLM, Gemma or OLMo.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/models/bodies/body.h"
#include "levin/models/layers/rotary.h"
#include "levin/models/pretrained.h"

namespace levin::models {

struct DecoderOptions {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  std::string hidden_act = "silu";
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  double attention_dropout = 0.0;
  int64_t padding_idx = -1;  ///< row of the embedding that gets no gradient; -1: none

  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool norm_one_plus = false;  ///< the norms multiply by 1 + weight
  /// Norms of queries and keys: of each head, or of all heads as one vector.
  enum class QueryKeyNorm { kNone, kHead, kWhole } query_key_norm = QueryKeyNorm::kNone;
  /// Names of a block's norms; empty: there is none at that place.
  struct Norms {
    std::string before_attention = "input_layernorm";
    std::string after_attention;
    std::string before_mlp = "post_attention_layernorm";
    std::string after_mlp;
  } norms;

  bool is_causal = true;  ///< else tokens see to both sides, and a window is the largest distance
  double embedding_scale = 1.0;
  double score_scale = 0.0;  ///< scale of attention's scores; 0: 1 / sqrt(head_dim)

  struct Block {
    int64_t window = 0;  ///< tokens that a token sees; 0: all before it
    int64_t rotary = 0;  ///< index of the one of rotaries that turns its queries and keys; -1: none
  };
  std::vector<Block> blocks;
  std::vector<RotaryOptions> rotaries;

  /// Reads the keys that the configs of these families share: full attention, and one rotary
  /// embedding with rope_theta, or with this default. Without a default the family reads its own.
  static DecoderOptions from(const Config& config, std::optional<double> rope_theta = 10000.0);
  /// Qwen's: "layer_types", or windows from layer "max_window_layers" on, where "use_sliding_window" is set.
  void read_windows(const Config& config);
  /// Sets windows where "layer_types" has "sliding_attention". If window is 0 there is none, and a
  /// layer that asks for it is an Error "models.config". Does nothing if the config has no
  /// "layer_types".
  void read_layer_types(const Config& config, int64_t window);
  /// "sliding_window"; 0: the config has none.
  static int64_t window_of(const Config& config);
};

/// Throws Error "models.config" for sizes that do not go together.
std::unique_ptr<Body> make_decoder(torch::nn::Module& root, const std::string& prefix,
                                   const DecoderOptions& options);

}  // namespace levin::models
