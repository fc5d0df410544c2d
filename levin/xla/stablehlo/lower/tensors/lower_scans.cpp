// Running products, extremes and sums of exponentials: each step of log2(n) takes in what lies
// twice as far ahead (Hillis and Steele 1986).
#include <functional>
#include <limits>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

using Scanned = std::vector<Term>;
/// Joins the scan before with the scan after; associative.
using Join = std::function<Scanned(const Scanned& before, const Scanned& after)>;

/// The elements `by` places ahead; the first ones are `start`.
Term shifted(Lowering& at, const Term& x, int64_t dim, int64_t by, const Hlo& start) {
  Dims low(x.sizes().size(), 0);
  Dims high = low;
  low[dim] = by;
  high[dim] = -by;
  return {at.hlo, at.hlo.pad(x, start, low, high, Dims(x.sizes().size(), 0))};
}

Scanned scan(Lowering& at, Scanned values, int64_t dim, const std::vector<Hlo>& start,
             const Join& join) {
  const int64_t size = values.front().sizes()[dim];
  for (int64_t by = 1; by < size; by *= 2) {
    Scanned before;
    for (size_t i = 0; i < values.size(); ++i) {
      before.push_back(shifted(at, values[i], dim, by, start[i]));
    }
    values = join(before, values);
  }
  return values;
}

void lower_cumprod(Lowering& at) {
  const Term x(at.hlo, at.tensor(0, Lowering::compute_dtype(at.dtype())));
  if (x.hlo().rank() == 0 || x.hlo().numel() == 0) return at.give(x);
  const Join join = [](const Scanned& before, const Scanned& after) {
    return Scanned{before[0] * after[0]};
  };
  const Hlo one = at.hlo.constant(1, x.dtype());
  at.give(scan(at, {x}, at.dim(1, x.hlo().rank()), {one}, join)[0]);
}

/// The last of equal ones; a NaN stays until the end.
LowerFunction running_extreme(bool is_most) {
  return [is_most](Lowering& at) {
    const Hlo x = at.tensor(0);
    if (x.rank() == 0 || x.numel() == 0) {
      at.give(x);
      return at.give(at.hlo.constant(0, at::kLong));
    }
    const int64_t dim = at.dim(1, x.rank());
    const Term place(at.hlo, at.hlo.iota(at::kLong, x.sizes, dim));
    const bool is_float = at::isFloatingType(x.dtype);
    // A place of -1 is before the first element, and is never taken.
    const Join join = [=](const Scanned& before, const Scanned& after) {
      Term takes_after = is_most ? after[0] >= before[0] : after[0] <= before[0];
      if (is_float) takes_after = is_nan(after[0]) | (takes_after & !is_nan(before[0]));
      takes_after = takes_after | (before[1] < 0);
      return Scanned{where(takes_after, after[0], before[0]),
                     where(takes_after, after[1], before[1])};
    };
    const std::vector<Hlo> start = {at.hlo.constant(0, x.dtype), at.hlo.constant(-1, at::kLong)};
    const Scanned found = scan(at, {Term(at.hlo, x), place}, dim, start, join);
    at.give(found[0]);
    at.give(found[1]);
  };
}

Term join_exponents(const Term& a, const Term& b) {
  const double infinite = std::numeric_limits<double>::infinity();
  const Term is_plain = same(a, b) & same(abs(a), infinite);
  return where(is_plain, a, maximum(a, b) + log1p(exp(-abs(a - b))));
}

void lower_logcumsumexp(Lowering& at) {
  const Term x(at.hlo, at.tensor(0, Lowering::compute_dtype(at.dtype())));
  if (x.hlo().rank() == 0 || x.hlo().numel() == 0) return at.give(x);
  const Join join = [](const Scanned& before, const Scanned& after) {
    return Scanned{join_exponents(before[0], after[0])};
  };
  const Hlo none = at.hlo.infinity(x.dtype(), /*is_negative=*/true);
  at.give(scan(at, {x}, at.dim(1, x.hlo().rank()), {none}, join)[0]);
}

/// log(sum(exp(x))) without overflow; of infinities, and of no elements, what the sum gives.
void lower_logsumexp(Lowering& at) {
  const Term x(at.hlo, at.tensor(0, Lowering::compute_dtype(at.dtype())));
  const Dims dims = x.hlo().rank() == 0 ? Dims{} : at.dims(1, x.hlo().rank());
  const Term most(at.hlo, at.maximum(x, dims, /*keepdim=*/true));
  const Term is_infinite = same(abs(most), std::numeric_limits<double>::infinity());
  const Term shift = where(is_infinite, 0, most);
  const Term total(at.hlo, at.sum(exp(x - shift.expanded(x.sizes())), dims, /*keepdim=*/true));
  at.give(at.hlo.reshape(log(total) + shift, at.sizes()));
}

}  // namespace

void add_scans(LoweringTable& table) {
  table["aten::cumprod"] = lower_cumprod;
  table["aten::cummax"] = running_extreme(true);
  table["aten::cummin"] = running_extreme(false);
  table["aten::logcumsumexp"] = table["aten::_logcumsumexp"] = lower_logcumsumexp;
  table["aten::logsumexp"] = lower_logsumexp;
}

}  // namespace levin::xla
