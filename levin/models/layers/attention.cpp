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

}  // namespace

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  AttentionMask& mask, const AttendOptions& options) {
  const int64_t heads = query.size(2);
  const auto q = query.transpose(1, 2), k = by_head(key, heads), v = by_head(value, heads);
  const at::Tensor& added = mask.of(options.window, q.scalar_type());
  std::optional<at::Tensor> given;
  if (added.defined()) given = added;
  std::optional<double> scale;  // unset: the kernel's own
  if (options.scale != 0) scale = options.scale;
  const auto mixed =  // [B, heads, T, D]
      at::scaled_dot_product_attention(q, k, v, given, options.dropout,
                                       mask.is_causal(options.window), scale);
  return mixed.transpose(1, 2).reshape({query.size(0), query.size(1), -1});
}

}  // namespace levin::models
