#pragma once
// Attention over heads, by LibTorch's kernels.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "levin/models/layers/attention_mask.h"
#include "levin/models/layers/cache.h"

namespace levin::models {

struct AttendOptions {
  int64_t window = 0;           ///< as AttentionMask::of's
  double scale = 0;             ///< scale of the scores; 0: 1 / sqrt(head_dim)
  double dropout = 0;           ///< dropout rate of the probabilities
  LayerCache* cache = nullptr;  ///< takes key and value up, and has those of the tokens before
};

/// query [B, T, heads, D], key and value [B, T, groups, D], groups a divisor of heads -> [B, T, heads * D]
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  AttentionMask& mask, const AttendOptions& options);

}  // namespace levin::models
