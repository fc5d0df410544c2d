#pragma once
// The masks of attention: padding, causality, windows and the documents of a packed row. They are
// made once a batch, for all blocks.
//
//   AttentionMask mask(inputs, /*causal=*/true);
//   at::scaled_dot_product_attention(q, k, v, mask.of(0, q.scalar_type()), 0.0, mask.is_causal(0));

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "levin/models/inputs.h"
#include "levin/models/layers/cache.h"

namespace levin::models {

class AttentionMask {
 public:
  AttentionMask(const Inputs& inputs, bool causal);

  /// Returns the mask that is added to the scores, 0 or -infinity: [B or 1, 1, T or 1, T];
  /// undefined if each token may attend to all, or to all before it (is_causal). window: tokens
  /// that a token sees, itself among them, in a causal model; in others how far it sees to each
  /// side. 0: no limit. A row of padding may be all -infinity: LibTorch's kernels give 0 for it.
  const at::Tensor& of(int64_t window, at::ScalarType dtype);
  /// Returns whether the kernel itself must mask later tokens.
  bool is_causal(int64_t window) const;
  /// Returns whether the queries are next tokens, so that of() masks the keys that a cache returns;
  /// cache() is nullptr without one.
  bool has_past() const { return has_past_; }
  Cache* cache() const { return cache_; }

 private:
  struct Made {
    int64_t window;
    at::ScalarType dtype;
    at::Tensor mask;
  };

  bool reaches_all(int64_t window) const { return window <= 0 || window >= length_; }
  at::Tensor allowed(int64_t window) const;
  at::Tensor allowed_after(int64_t past, int64_t window) const;

  at::Tensor ids_, padding_, document_;
  int64_t length_;
  bool causal_;
  Cache* cache_;
  bool has_past_;
  std::vector<Made> made_;
  at::Tensor none_;
};

}  // namespace levin::models
