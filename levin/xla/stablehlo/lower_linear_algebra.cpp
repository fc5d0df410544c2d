// Products of matrices. Those of f16 and bf16 are summed in f32 by XLA.
#include <numeric>

#include "levin/xla/stablehlo/lowering.h"

namespace levin::xla {
namespace {

Hlo product(Lowering& at, size_t a, size_t b) {
  const at::ScalarType dtype = at.dtype();
  return at.hlo.dot_general(at.tensor(a, dtype), at.tensor(b, dtype), {}, {}, {1}, {0});
}

Hlo batched_product(Lowering& at, size_t a, size_t b) {
  const at::ScalarType dtype = at.dtype();
  return at.hlo.dot_general(at.tensor(a, dtype), at.tensor(b, dtype), {0}, {0}, {2}, {1});
}

/// beta * input + alpha * product; a beta of 0 leaves out even a NaN.
Hlo added(Lowering& at, const Hlo& product, size_t beta, size_t alpha) {
  Hlo scaled = product;
  if (at.number(alpha) != 1) {
    scaled =
        at.hlo.binary("multiply", product, at.spread(at.scalar(alpha, product.dtype), product));
  }
  if (at.number(beta) == 0) return scaled;
  Hlo input = at.hlo.expand(at.tensor(0, product.dtype), product.sizes);
  if (at.number(beta) != 1) {
    input = at.hlo.binary("multiply", input, at.spread(at.scalar(beta, input.dtype), input));
  }
  return at.hlo.binary("add", scaled, input);
}

void lower_mm(Lowering& at) { at.give(product(at, 0, 1)); }
void lower_bmm(Lowering& at) { at.give(batched_product(at, 0, 1)); }
void lower_addmm(Lowering& at) { at.give(added(at, product(at, 1, 2), 3, 4)); }
void lower_baddbmm(Lowering& at) { at.give(added(at, batched_product(at, 1, 2), 3, 4)); }
void lower_addmv(Lowering& at) { at.give(added(at, product(at, 1, 2), 3, 4)); }

void lower_dot(Lowering& at) {
  at.give(at.hlo.dot_general(at.tensor(0), at.tensor(1), {}, {}, {0}, {0}));
}

void lower_mv(Lowering& at) {
  at.give(at.hlo.dot_general(at.tensor(0), at.tensor(1), {}, {}, {1}, {0}));
}

/// The upper (lower) triangle above (below) the k-th diagonal.
LowerFunction triangle(std::string_view direction) {
  return [direction](Lowering& at) {
    const Hlo x = at.tensor(0);
    const Hlo row = at.hlo.iota(at::kInt, x.sizes, x.rank() - 2);
    const Hlo column = at.hlo.iota(at::kInt, x.sizes, x.rank() - 1);
    const Hlo diagonal = at.hlo.binary("add", row, at.like(at.integer(1), row));
    const Hlo is_in = at.hlo.compare(direction, column, diagonal);
    at.give(at.hlo.select(is_in, x, at.like(0, x)));
  };
}

}  // namespace

void add_linear_algebra(LoweringTable& table) {
  table["aten::mm"] = lower_mm;
  table["aten::bmm"] = lower_bmm;
  table["aten::addmm"] = lower_addmm;
  table["aten::baddbmm"] = lower_baddbmm;
  table["aten::addmv"] = lower_addmv;
  table["aten::dot"] = lower_dot;
  table["aten::mv"] = lower_mv;
  table["aten::triu"] = triangle("GE");
  table["aten::tril"] = triangle("LE");
}

}  // namespace levin::xla
