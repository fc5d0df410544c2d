#pragma once
// Which token may attend to which: padding, causality, windows and the documents of a packed row. Made
// once a batch, for all blocks.
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

  /// What is added to the scores, 0 or -infinity: [B or 1, 1, T or 1, T]; undefined where all may attend
  /// to all, or to all before them (is_causal). window: tokens that a token sees, itself among them, in
  /// a causal model; else how far it sees to each side. 0: no limit. A row of padding may be all
  /// -infinity: LibTorch's kernels give 0 for it.
  const at::Tensor& of(int64_t window, at::ScalarType dtype);
  /// Whether the kernel is to leave out later tokens by itself.
  bool is_causal(int64_t window) const;
  /// Whether the queries are of next tokens, and of() is over what a cache gives them; cache() is nullptr
  /// where there is none.
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
