// Single elements, read and written at the places that a tensor of indices or a mask names.
#include "levin/graph/values.h"
#include "levin/xla/stablehlo/indices.h"
#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

/// Cuts every other dimension to the size of the index.
Hlo cropped(Lowering& at, const Hlo& x, const Dims& sizes, int64_t kept_dim) {
  Dims limit = sizes;
  if (kept_dim >= 0) limit[kept_dim] = x.sizes[kept_dim];
  return at.hlo.slice(x, Dims(limit.size(), 0), limit, Dims(limit.size(), 1));
}

constexpr int64_t kComparedClasses = 256;  // more of them are gathered

/// One of few classes of each row: a comparison fuses with what made them.
Hlo gather_one(Lowering& at, const Hlo& x, int64_t dim, const Hlo& index) {
  const Hlo all = cropped(at, x, index.sizes, dim);
  const Hlo places = at.hlo.expand(wrapped(at, index, x.sizes[dim]), all.sizes);
  const Hlo is_it = at.hlo.compare("EQ", at.hlo.iota(at::kLong, all.sizes, dim), places);
  const bool is_bool = x.dtype == at::kBool;
  const Hlo chosen = at.hlo.select(is_it, all, at.like(0, all));
  const Hlo found =
      at.hlo.reduce(is_bool ? "or" : "add", chosen, at.hlo.constant(0, x.dtype), {dim});
  return at.hlo.reshape(found, index.sizes);
}

/// self, dim, index
void lower_gather(Lowering& at) {
  const auto [x, dim] = with_dim(at, 0);
  const Hlo index = at.tensor(2);
  if (index.numel() == 0) return at.give(at.hlo.constant(0, x.dtype, at.sizes()));
  const Hlo places = index.rank() == 0 ? at.hlo.reshape(index, {1}) : index;
  const bool is_one = places.sizes[dim] == 1 && x.sizes[dim] <= kComparedClasses;
  const Hlo found = is_one ? gather_one(at, x, dim, places) : gather_elements(at, x, dim, places);
  const Hlo from_start = wrapped(at, places, x.sizes[dim]);
  at.give(at.hlo.reshape(nan_beyond(at, found, from_start, x.sizes[dim], all_dims(found.rank())),
                         at.sizes()));
}

struct ElementScatter {
  Hlo x, places, updates;
  ScatterDims dims;

  Hlo by(Lowering& at, std::string_view name, const Hlo& into, const Hlo& values) const {
    return at.hlo.scatter(name, into, places, values, dims);
  }
};

/// self, dim, index, and a source that is a tensor of at least the index's sizes, or one number.
ElementScatter element_scatter(Lowering& at) {
  const auto [x, dim] = with_dim(at, 0);
  Hlo index = at.tensor(2);
  if (index.rank() == 0) index = at.hlo.reshape(index, {1});
  if (index.numel() == 0) index = at.hlo.constant(0, at::kLong, Dims(x.sizes.size(), 0));
  Hlo source = at.tensor(3, x.dtype);
  const bool is_number = graph::constant_of(at.node.arguments()[3]) != nullptr;
  if (!is_number && source.rank() == 0) source = at.hlo.reshape(source, {1});
  source = is_number ? at.hlo.expand(source, index.sizes) : cropped(at, source, index.sizes, -1);
  const ScatterDims dims{.inserted_window = all_dims(x.rank()),
                         .scatter_dims_to_operand = all_dims(x.rank()),
                         .index_vector_dim = x.rank()};
  return {x, element_places(at, x, dim, index), source, dims};
}

LowerFunction scatter_by(std::string_view name) {
  return [name](Lowering& at) {
    const ElementScatter scatter = element_scatter(at);
    const std::string_view how = name == "add" && scatter.x.dtype == at::kBool ? "or" : name;
    at.give(at.hlo.reshape(scatter.by(at, how, scatter.x, scatter.updates), at.sizes()));
  };
}

/// scatter.reduce and scatter.value_reduce: argument 4 is "add" or "multiply".
void lower_scatter_reduce_named(Lowering& at) {
  scatter_by(at.text(4) == "add" ? "add" : "multiply")(at);
}

std::string_view combiner_of(std::string_view reduce) {
  if (reduce == "prod") return "multiply";
  if (reduce == "amax") return "maximum";
  return reduce == "amin" ? "minimum" : "add";
}

Hlo neutral_of(Lowering& at, std::string_view combiner, at::ScalarType dtype) {
  if (combiner == "maximum") return at.hlo.lowest(dtype);
  if (combiner == "minimum") return at.hlo.highest(dtype);
  return at.hlo.constant(combiner == "multiply" ? 1 : 0, dtype);
}

/// self, dim, index, src, reduce, include_self
void lower_scatter_reduce(Lowering& at) {
  const ElementScatter scatter = element_scatter(at);
  const std::string_view combiner = combiner_of(at.text(4));
  const bool includes_self = at.flag(5);
  const Hlo neutral = neutral_of(at, combiner, scatter.x.dtype);
  Hlo into = scatter.x;
  if (!includes_self) {
    into = scatter.by(at, "", into, at.hlo.expand(neutral, scatter.updates.sizes));
  }
  Hlo reduced = scatter.by(at, combiner, into, scatter.updates);
  if (at.text(4) == "mean") {
    const Hlo own = at.hlo.constant(includes_self ? 1 : 0, at::kLong, scatter.x.sizes);
    const Hlo ones = at.hlo.constant(1, at::kLong, scatter.updates.sizes);
    const Term counts(at.hlo, scatter.by(at, "add", own, ones));
    const Term divisor = maximum(counts, 1).as(reduced.dtype);
    Term quotient = Term(at.hlo, reduced) / divisor;
    if (!at::isFloatingType(reduced.dtype)) {  // rounded down
      const Term rest = Term(at.hlo, reduced).binary("remainder", divisor);
      quotient = where(rest < 0, quotient - 1, quotient);
    }
    reduced = quotient;
  }
  at.give(at.hlo.reshape(reduced, at.sizes()));
}

/// self, index: as if self were one row.
void lower_take(Lowering& at) {
  const Hlo x = at.tensor(0);
  const Hlo row = at.hlo.reshape(x, {x.numel()});
  const Hlo index = at.tensor(1);
  const Hlo places = at.hlo.reshape(index, {index.numel()});
  at.give(at.hlo.reshape(gather_elements(at, row, 0, places), at.sizes()));
}

/// self, index, source, accumulate
void lower_put(Lowering& at) {
  const Hlo x = at.tensor(0);
  const Hlo row = at.hlo.reshape(x, {x.numel()});
  const Hlo index = at.tensor(1);
  const Hlo places = at.hlo.reshape(wrapped(at, index, x.numel()), {index.numel(), 1});
  const Hlo source = at.hlo.reshape(at.tensor(2, x.dtype), {index.numel()});
  const ScatterDims dims{
      .inserted_window = {0}, .scatter_dims_to_operand = {0}, .index_vector_dim = 1};
  const Hlo written = at.hlo.scatter(at.flag(3) ? "add" : "", row, places, source, dims);
  at.give(at.hlo.reshape(written, at.sizes()));
}

/// Returns for each element of the mask, as one row, how many elements up to it are set.
Hlo ranks_of(Lowering& at, const Hlo& mask) {
  const int64_t count = mask.numel();
  const Hlo ones = at.hlo.convert(at.hlo.reshape(mask, {count}), at::kLong);
  const Window window{{count}, {1}, {1}, {1}, {count - 1}, {0}};
  return at.hlo.reduce_window("add", ones, at.hlo.constant(0, at::kLong), window);
}

/// self, mask, source: the source's elements one after the other, where the mask is set.
void lower_masked_scatter(Lowering& at) {
  const Hlo x = at.hlo.expand(at.tensor(0), at.sizes());
  const Hlo mask = at.hlo.expand(at.tensor(1, at::kBool), x.sizes);
  const Hlo source = at.tensor(2, x.dtype);
  if (x.numel() == 0 || source.numel() == 0) return at.give(x);
  const Hlo places = Term(at.hlo, ranks_of(at, mask)) - 1;
  const Hlo row = at.hlo.reshape(source, {source.numel()});
  const Hlo taken = gather_elements(at, row, 0, maximum(Term(at.hlo, places), 0));
  at.give(at.hlo.select(mask, at.hlo.reshape(taken, x.sizes), x));
}

/// grad, mask, sizes of the source: the chosen elements in front, then zeros.
void lower_masked_scatter_backward(Lowering& at) {
  const Hlo grad = at.tensor(0);
  const Dims sizes = at.sizes();
  const Hlo mask = at.hlo.expand(at.tensor(1, at::kBool), grad.sizes);
  if (grad.numel() == 0) return at.give(at.hlo.constant(0, grad.dtype));
  const Hlo zeros = at.hlo.constant(0, grad.dtype, {Hlo{.sizes = sizes}.numel()});
  const Term set(at.hlo, at.hlo.reshape(mask, {mask.numel()}));
  const Term rank(at.hlo, ranks_of(at, mask));
  const Term place = where(set, rank - 1, static_cast<double>(zeros.numel()));
  const ScatterDims dims{
      .inserted_window = {0}, .scatter_dims_to_operand = {0}, .index_vector_dim = 1};
  const Hlo row = at.hlo.reshape(grad, {grad.numel()});
  const Hlo chosen = at.hlo.scatter("", zeros, at.hlo.reshape(place, {grad.numel(), 1}), row, dims);
  at.give(at.hlo.reshape(chosen, sizes));
}

}  // namespace

void add_scatters(LoweringTable& table) {
  table["aten::gather"] = lower_gather;
  table["aten::scatter.src"] = table["aten::scatter.value"] = scatter_by("");
  table["aten::scatter_add"] = scatter_by("add");
  table["aten::scatter.reduce"] = lower_scatter_reduce_named;
  table["aten::scatter.value_reduce"] = lower_scatter_reduce_named;
  table["aten::scatter_reduce.two"] = lower_scatter_reduce;
  table["aten::take"] = lower_take;
  table["aten::put"] = lower_put;
  table["aten::masked_scatter"] = lower_masked_scatter;
  table["aten::masked_scatter_backward"] = lower_masked_scatter_backward;
}

}  // namespace levin::xla
