#include "levin/models/layers/attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <optional>

namespace levin::models {
namespace {

/// [B, T, groups, D] -> [B, heads, T, D], each group as often as it has heads.
at::Tensor by_head(const at::Tensor& x, int64_t heads) {
  const int64_t groups = x.size(2);
  const auto turned = x.transpose(1, 2);
  if (groups == heads) return turned;
  return turned.unsqueeze(2)
      .expand({x.size(0), groups, heads / groups, x.size(1), x.size(3)})
      .reshape({x.size(0), heads, x.size(1), x.size(3)});
}

/// [B, heads, T, D]
at::Tensor mixed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, AttentionMask& mask,
                 const AttendOptions& options) {
  const at::Tensor& added = mask.of(options.window, q.scalar_type());
  std::optional<at::Tensor> given;
  if (added.defined()) given = added;
  std::optional<double> scale;  // unset: the kernel's own
  if (options.scale != 0) scale = options.scale;
  return at::scaled_dot_product_attention(q, k, v, given, options.dropout,
                                          mask.is_causal(options.window), scale);
}

/// Attention for one new token per row. The kernel gets the heads of a group as if they were several tokens, so
/// they share keys and values without a copy.
at::Tensor attend_next(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       AttentionMask& mask, const AttendOptions& options) {
  const auto [k, v] = options.cache->append(key, value);
  const auto q = query.reshape({query.size(0), k.size(1), -1, query.size(3)});
  return mixed(q, k, v, mask, options).reshape({query.size(0), 1, -1});
}

/// Attention for several new tokens that follow those of the KV cache.
at::Tensor attend_more(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       AttentionMask& mask, const AttendOptions& options) {
  const auto [k, v] = options.cache->append(key, value);
  const int64_t heads = query.size(2);
  return mixed(query.transpose(1, 2), by_head(k.transpose(1, 2), heads),
               by_head(v.transpose(1, 2), heads), mask, options)
      .transpose(1, 2)
      .reshape({query.size(0), query.size(1), -1});
}

}  // namespace

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  AttentionMask& mask, const AttendOptions& options) {
  if (mask.has_past() && query.size(1) == 1) return attend_next(query, key, value, mask, options);
  if (mask.has_past()) return attend_more(query, key, value, mask, options);
  if (options.cache != nullptr)
    options.cache->fill(key, value, options.window, mask.cache()->capacity());
  const int64_t heads = query.size(2);
  return mixed(query.transpose(1, 2), by_head(key, heads), by_head(value, heads), mask, options)
      .transpose(1, 2)
      .reshape({query.size(0), query.size(1), -1});
}

}  // namespace levin::models
