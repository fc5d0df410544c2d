#pragma once
// Rotary position embeddings (Su et al. 2021): angles from a config, and their use on queries and keys.
//
//   const Rotary rotary(RotaryOptions::from(config, 10000.0), head_dim);
//   const auto [cos, sin] = rotary.angles(positions, at::kFloat);   // [B or 1, T, 1, head_dim / 2]
//   query = rotate(query, cos, sin);                                // [B, T, heads, head_dim]

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "levin/models/pretrained.h"

namespace levin::models {

/// transformers' rope_parameters.
struct RotaryOptions {
  std::string kind = "default";  ///< or linear, llama3, yarn
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;                                    ///< llama3
  double high_freq_factor = 4.0;                                   ///< llama3
  double beta_fast = 32.0;                                         ///< yarn
  double beta_slow = 1.0;                                          ///< yarn
  bool truncate = true;                                            ///< yarn
  std::optional<double> attention_factor, mscale, mscale_all_dim;  ///< yarn
  int64_t original_max_position_embeddings = 0;                    ///< llama3, yarn

  /// Reads "rope_scaling" and "rope_theta" (transformers 4), or "rope_parameters" (transformers 5).
  /// Throws Error "models.rotary" for a kind that levin does not have and for a rotary dim that is
  /// a part of the head.
  static RotaryOptions from(const Config& config, double theta);
  /// The same of layers of a type, which "rope_parameters" has an entry for; "rope_scaling" is of all types.
  static RotaryOptions of_layers(const Config& config, const std::string& type, double theta);

 private:
  static RotaryOptions read(const Config& given, const Config& config, double theta);
};

/// Angles are computed in float32 whatever the weights are, as transformers does.
class Rotary {
 public:
  Rotary(const RotaryOptions& options, int64_t head_dim);

  /// positions: int64 [B or 1, T] -> cosines and sines [B or 1, T, 1, head_dim / 2] of a dtype.
  std::pair<at::Tensor, at::Tensor> angles(const at::Tensor& positions, at::ScalarType dtype);

 private:
  at::Tensor frequencies_;  // float32 [head_dim / 2], on the device of the last positions
  double scale_ = 1.0;
};

/// Turns the pairs (i, i + head_dim / 2) of x [B, T, heads, head_dim].
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace levin::models
