// Products of matrices. XLA sums products of f16 and bf16 in f32.
#include <algorithm>
#include <array>
#include <numeric>

#include "levin/xla/stablehlo/lower/lowering.h"

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

/// addmm_backward(gradient, mat1, mat2, self_sizes, mask): gradients of self, mat1 and mat2
void lower_addmm_backward(Lowering& at) {
  const Hlo gradient = at.tensor(0);
  if (at.wants(0)) {
    Dims repeated;  // dimensions that were missing, or had one element, in the added tensor
    const Dims sizes = at.list(3);
    for (int64_t dim = 0; dim < 2; ++dim) {
      const int64_t own = dim - 2 + static_cast<int64_t>(sizes.size());
      if (own < 0 || sizes[own] != gradient.sizes[dim]) repeated.push_back(dim);
    }
    const Hlo wide = at.hlo.convert(gradient, Lowering::compute_dtype(gradient.dtype));
    at.give(0, at.hlo.reshape(at.sum(wide, repeated, /*keepdim=*/false), at.sizes(0)));
  }
  if (at.wants(1)) at.give(1, at.hlo.dot_general(gradient, at.tensor(2), {}, {}, {1}, {1}));
  if (at.wants(2)) at.give(2, at.hlo.dot_general(at.tensor(1), gradient, {}, {}, {0}, {0}));
}

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

/// A value whose dimensions are some of those of a sum of products, by their names: numbers.
struct Factor {
  Hlo value;
  Dims names;

  bool has(int64_t name) const { return std::ranges::find(names, name) != names.end(); }
  int64_t place(int64_t name) const { return std::ranges::find(names, name) - names.begin(); }
};

/// Sums over the names that nobody wants any more.
Factor summed(Lowering& at, const Factor& of, const std::function<bool(int64_t)>& is_wanted) {
  Factor rest{.value = of.value, .names = {}};
  Dims gone;
  for (size_t i = 0; i < of.names.size(); ++i) {
    if (is_wanted(of.names[i])) {
      rest.names.push_back(of.names[i]);
    } else {
      gone.push_back(static_cast<int64_t>(i));
    }
  }
  rest.value = at.sum(of.value, gone, false);
  return rest;
}

/// a b, summed over what is not wanted: one product of matrices.
Factor contracted(Lowering& at, const Factor& first, const Factor& second,
                  const std::function<bool(int64_t)>& is_wanted) {
  const Factor a = summed(at, first, [&](int64_t n) { return second.has(n) || is_wanted(n); });
  const Factor b = summed(at, second, [&](int64_t n) { return first.has(n) || is_wanted(n); });
  Dims batch_a, batch_b, contract_a, contract_b;
  Factor product;
  for (const int64_t name : a.names) {
    if (!b.has(name)) continue;
    (is_wanted(name) ? batch_a : contract_a).push_back(a.place(name));
    (is_wanted(name) ? batch_b : contract_b).push_back(b.place(name));
    if (is_wanted(name)) product.names.push_back(name);
  }
  for (const int64_t name : a.names) {
    if (!b.has(name)) product.names.push_back(name);
  }
  for (const int64_t name : b.names) {
    if (!a.has(name)) product.names.push_back(name);
  }
  product.value = at.hlo.dot_general(a.value, b.value, batch_a, batch_b, contract_a, contract_b);
  return product;
}

/// The product of three, each without the dimensions of `expand`, summed over some: what a bilinear
/// layer and its gradients are.
void lower_trilinear(Lowering& at) {
  std::array<Factor, 3> factors;
  std::array<Hlo, 3> given = {at.tensor(0), at.tensor(1), at.tensor(2)};
  const auto rank = given[0].rank() + static_cast<int64_t>(at.list(3).size());
  const Dims gone = at.list(6);
  for (size_t i = 0; i < 3; ++i) {
    const Dims absent = at.list(3 + i);
    Dims sizes;  // a dimension of one element is repeated over the others': it is left out
    int64_t place = 0;
    for (int64_t name = 0; name < rank; ++name) {
      if (std::ranges::find(absent, name) != absent.end()) continue;
      const int64_t size = given[i].sizes[place++];
      if (size == 1) continue;
      factors[i].names.push_back(name);
      sizes.push_back(size);
    }
    factors[i].value =
        at.hlo.reshape(at.hlo.convert(given[i], Lowering::compute_dtype(given[i].dtype)), sizes);
  }
  const auto is_result = [&](int64_t name) { return std::ranges::find(gone, name) == gone.end(); };
  const Factor pair = contracted(at, factors[0], factors[1], [&](int64_t name) {
    return is_result(name) || factors[2].has(name);
  });
  const Factor all = contracted(at, pair, factors[2], is_result);
  // The dimensions are in the order of the names; a name that no factor has gets one element.
  Dims permutation;
  for (int64_t name = 0; name < rank; ++name) {
    if (all.has(name)) permutation.push_back(all.place(name));
  }
  at.give(at.hlo.reshape(at.hlo.transpose(all.value, permutation), at.sizes()));
}

}  // namespace

void add_linear_algebra(LoweringTable& table) {
  table["aten::mm"] = lower_mm;
  table["aten::bmm"] = lower_bmm;
  table["aten::addmm"] = lower_addmm;
  table["aten::baddbmm"] = lower_baddbmm;
  table["aten::addmv"] = lower_addmv;
  table["levin::addmm_backward"] = lower_addmm_backward;
  table["aten::dot"] = lower_dot;
  table["aten::mv"] = lower_mv;
  table["aten::_trilinear"] = lower_trilinear;
  table["aten::triu"] = triangle("GE");
  table["aten::tril"] = triangle("LE");
}

}  // namespace levin::xla
