// Attention of the CPU, one operator that keeps no probabilities (Dao et al. 2022). It is lowered
// as on a device without such an operator: forward and backward compute the same probabilities,
// which the compiler merges into one value.
#include <ATen/core/dispatch/Dispatcher.h>

#include <cmath>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

/// query [B, H, L, E], key and value [B, H, S, E], at `first` of the arguments; the others by name.
class Attention {
 public:
  Attention(Lowering& at, size_t first)
      : at_(at),
        query_(at.tensor(first)),
        key_(at.tensor(first + 1)),
        value_(at.tensor(first + 2)) {
    const auto& schema = at.node.op().schema();
    mask_ = static_cast<size_t>(*schema.argumentIndexWithName("attn_mask"));
    const auto scale = static_cast<size_t>(*schema.argumentIndexWithName("scale"));
    const auto causal = static_cast<size_t>(*schema.argumentIndexWithName("is_causal"));
    is_causal_ = at.flag(causal);
    scale_ = at.has(scale) ? at.number(scale)
                           : 1.0 / std::sqrt(static_cast<double>(query_.sizes.back()));
  }

  /// [B, H, L, S] in f32 (f64).
  Hlo scores() const {
    const Hlo products = in_compute(at_.hlo.dot_general(query_, key_, {0, 1}, {0, 1}, {3}, {3}));
    Hlo scores = scaled(products);
    if (at_.has(mask_)) {
      const Hlo mask = at_.hlo.expand(at_.tensor(mask_, scores.dtype), scores.sizes);
      scores = at_.hlo.binary("add", scores, mask);
    }
    if (!is_causal_) return scores;
    const Hlo row = at_.hlo.iota(at::kInt, scores.sizes, 2);
    const Hlo column = at_.hlo.iota(at::kInt, scores.sizes, 3);
    const Hlo least = at_.hlo.expand(at_.hlo.infinity(scores.dtype, true), scores.sizes);
    return at_.hlo.select(at_.hlo.compare("LE", column, row), scores, least);
  }

  Hlo in_compute(const Hlo& x) const {
    return at_.hlo.convert(x, Lowering::compute_dtype(x.dtype));
  }
  Hlo scaled(const Hlo& x) const { return at_.hlo.binary("multiply", x, at_.like(scale_, x)); }
  const Hlo& query() const { return query_; }
  const Hlo& key() const { return key_; }
  const Hlo& value() const { return value_; }

 private:
  Lowering& at_;
  Hlo query_, key_, value_;
  size_t mask_ = 0;
  bool is_causal_ = false;
  double scale_ = 1.0;
};

struct Probabilities {
  Hlo values;     ///< [B, H, L, S]
  Hlo logsumexp;  ///< [B, H, L]
};

Probabilities probabilities_of(Lowering& at, const Hlo& scores) {
  const auto spread = [&](const Hlo& row) { return at.hlo.expand(row, scores.sizes); };
  const Hlo most = at.maximum(scores, {3}, /*keepdim=*/true);
  const Hlo powers = at.hlo.unary("exponential", at.hlo.binary("subtract", scores, spread(most)));
  const Hlo total = at.sum(powers, {3}, /*keepdim=*/true);
  const Hlo logsumexp = at.hlo.binary("add", most, at.hlo.unary("log", total));
  const Dims rows(scores.sizes.begin(), scores.sizes.end() - 1);
  return {at.hlo.binary("divide", powers, spread(total)), at.hlo.reshape(logsumexp, rows)};
}

/// query, key, value, ...: output, logsumexp
void lower_attention(Lowering& at) {
  const Attention attention(at, 0);
  const Probabilities p = probabilities_of(at, attention.scores());
  const Hlo& value = attention.value();
  at.give(
      at.hlo.dot_general(at.hlo.convert(p.values, value.dtype), value, {0, 1}, {0, 1}, {3}, {2}));
  at.give(p.logsumexp);
}

/// grad_out, query, key, value, out, logsumexp, ...: the gradients of query, key and value
void lower_attention_backward(Lowering& at) {
  const Attention attention(at, 1);
  const Hlo p = probabilities_of(at, attention.scores()).values;
  const at::ScalarType dtype = attention.query().dtype;
  const Hlo grad = at.hlo.convert(at.tensor(0), dtype);
  const Hlo grad_p =
      attention.in_compute(at.hlo.dot_general(grad, attention.value(), {0, 1}, {0, 1}, {3}, {3}));
  const Hlo weighted = at.hlo.binary("multiply", grad_p, p);
  const Hlo total = at.hlo.expand(at.sum(weighted, {3}, /*keepdim=*/true), p.sizes);
  const Hlo grad_scores = at.hlo.convert(
      attention.scaled(at.hlo.binary("subtract", weighted, at.hlo.binary("multiply", p, total))),
      dtype);
  at.give(0, at.hlo.dot_general(grad_scores, attention.key(), {0, 1}, {0, 1}, {3}, {2}));
  at.give(1, at.hlo.dot_general(grad_scores, attention.query(), {0, 1}, {0, 1}, {2}, {2}));
  at.give(2, at.hlo.dot_general(at.hlo.convert(p, dtype), grad, {0, 1}, {0, 1}, {2}, {2}));
}

}  // namespace

void add_host_attention(LoweringTable& table) {
  table["aten::_scaled_dot_product_flash_attention_for_cpu"] = lower_attention;
  table["aten::_scaled_dot_product_flash_attention_for_cpu_backward"] = lower_attention_backward;
}

}  // namespace levin::xla
