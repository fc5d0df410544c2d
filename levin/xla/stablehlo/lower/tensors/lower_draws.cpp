// Draws of a whole row: permutations, and categories by their weights.
#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

/// Places in the order of 64 random bits each.
Hlo random_order(Lowering& at, int64_t count) {
  const Hlo bits = at.random_wide_bits({count});
  return at.hlo.sort({bits, at.hlo.iota(at::kLong, {count}, 0)}, 0, /*descending=*/false)[1];
}

void lower_randperm(Lowering& at) { at.give(random_order(at, at.sizes()[0])); }

/// The categories whose exponential times with these rates are first: draws without replacement,
/// as ATen has them.
Hlo race_winners(Lowering& at, const Hlo& p, int64_t count) {
  const Term times(at.hlo, at.open_uniform(p.dtype, p.sizes));
  const Term speed = Term(at.hlo, p) / -log(times);
  const int64_t dim = p.rank() - 1;
  const std::vector<Hlo> order =
      at.hlo.sort({speed, at.hlo.iota(at::kLong, p.sizes, dim)}, dim, /*descending=*/true);
  Dims limit = p.sizes;
  limit[dim] = count;
  return at.hlo.slice(order[1], Dims(limit.size(), 0), limit, Dims(limit.size(), 1));
}

/// Draws by counting the categories that end before a uniform share of the total, at most the last
/// possible one.
Hlo independent_draws(Lowering& at, const Hlo& p, int64_t count) {
  const int64_t dim = p.rank() - 1;
  Dims draws = p.sizes;
  draws[dim] = count;
  Dims table = draws;
  table.push_back(p.sizes[dim]);
  Dims to_p;
  Dims to_draws;
  for (int64_t i = 0; i < p.rank(); ++i) {
    to_draws.push_back(i);
    to_p.push_back(i == dim ? dim + 1 : i);
  }
  const Dims ones(p.sizes.size(), 1);
  Window window{ones, ones, ones, ones, Dims(ones.size(), 0), Dims(ones.size(), 0)};
  window.sizes[dim] = p.sizes[dim];
  window.pad_low[dim] = p.sizes[dim] - 1;
  const Hlo ends = at.hlo.reduce_window("add", p, at.hlo.constant(0, p.dtype), window);
  const Term total(at.hlo, at.maximum(ends, {dim}, /*keepdim=*/true));
  const Term share = Term(at.hlo, at.uniform(p.dtype, draws)) * total.expanded(draws);
  const Term is_before = Term(at.hlo, at.hlo.broadcast_in_dim(ends, table, to_p)) <=
                         Term(at.hlo, at.hlo.broadcast_in_dim(share, table, to_draws));
  const Term place(at.hlo, at.sum(is_before.as(at::kLong), {dim + 1}, /*keepdim=*/false));
  const Term category(at.hlo, at.hlo.iota(at::kLong, p.sizes, dim));
  const Term possible = where(Term(at.hlo, p) > 0, category, 0);
  const Term last(at.hlo, at.maximum(possible, {dim}, /*keepdim=*/true));
  return minimum(place, last.expanded(draws));
}

/// self, num_samples, replacement
void lower_multinomial(Lowering& at) {
  const Hlo given = at.tensor(0);
  const Hlo p = at.hlo.convert(given, Lowering::compute_dtype(given.dtype));
  const int64_t count = at.integer(1);
  at.give(at.flag(2) && count > 1 ? independent_draws(at, p, count) : race_winners(at, p, count));
}

}  // namespace

void add_draws(LoweringTable& table) {
  table["aten::randperm"] = table["aten::randperm.generator"] = lower_randperm;
  table["aten::multinomial"] = lower_multinomial;
}

}  // namespace levin::xla
