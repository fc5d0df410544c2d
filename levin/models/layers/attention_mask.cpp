#include "levin/models/layers/attention_mask.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace levin::models {
namespace {

/// Adds both masks; one of them may be undefined.
at::Tensor both(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? a.logical_and(b) : a;
}

}  // namespace

AttentionMask::AttentionMask(const Inputs& inputs, bool causal)
    : ids_(inputs.input_ids),
      padding_(inputs.attention_mask),
      document_(inputs.document),
      length_(inputs.input_ids.size(1)),
      causal_(causal),
      cache_(inputs.cache),
      has_past_(cache_ != nullptr && cache_->is_filled()) {}

bool AttentionMask::is_causal(int64_t window) const {
  return causal_ && !has_past_ && !padding_.defined() && !document_.defined() &&
         reaches_all(window);
}

const at::Tensor& AttentionMask::of(int64_t window, at::ScalarType dtype) {
  if (!has_past_) {
    if (!padding_.defined() && !document_.defined() && reaches_all(window)) return none_;
    if (reaches_all(window)) window = 0;
  }
  for (const Made& made : made_) {
    if (made.window == window && made.dtype == dtype) return made.mask;
  }
  const at::NoGradGuard no_grad;
  if (has_past_ && length_ == 1)
    return made_.emplace_back(Made{window, dtype, cache_->mask(window, dtype)}).mask;
  const auto may = has_past_ ? allowed_after(cache_->kept(window), window) : allowed(window);
  const auto mask = at::zeros(may.sizes(), may.options().dtype(dtype))
                        .masked_fill(may.logical_not(), -std::numeric_limits<double>::infinity());
  return made_.emplace_back(Made{window, dtype, mask}).mask;
}

at::Tensor AttentionMask::allowed(int64_t window) const {
  const auto index = at::arange(length_, ids_.options());
  const auto query = index.unsqueeze(1), key = index.unsqueeze(0);  // [T, 1], [1, T]
  at::Tensor near;
  if (causal_) near = query >= key;
  if (window > 0) {
    const auto distance = query - key;
    near = both(near, causal_ ? distance < window : distance.abs() <= window);
  }
  if (near.defined()) near = near.unsqueeze(0).unsqueeze(0);
  at::Tensor seen;
  if (document_.defined()) {
    seen = (document_.unsqueeze(2) == document_.unsqueeze(1)).unsqueeze(1);  // [B, 1, T, T]
  }
  if (padding_.defined()) seen = both(seen, (padding_ != 0).unsqueeze(1).unsqueeze(1));
  return both(near, seen);
}

/// [1, 1, T, past + T]; nothing is padding.
at::Tensor AttentionMask::allowed_after(int64_t past, int64_t window) const {
  const auto query = at::arange(past, past + length_, ids_.options()).unsqueeze(1);
  const auto key = at::arange(past + length_, ids_.options()).unsqueeze(0);
  auto near = query >= key;
  if (window > 0) near = near.logical_and(query - key < window);
  return near.unsqueeze(0).unsqueeze(0);
}

}  // namespace levin::models
