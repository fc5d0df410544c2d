// Elements chosen by indices that are tensors. An index beyond the tensor's sizes, which ATen
// refuses, reads the nearest element and writes none.
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <numeric>

#include "levin/graph/values_impl.h"
#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

/// Indices from 0 on: negative ones count from the end.
Hlo wrapped(Lowering& at, const Hlo& index, int64_t size) {
  const Term places(at.hlo, at.hlo.convert(index, at::kLong));
  return where(places < 0, places + static_cast<double>(size), places);
}

/// Of x[i, :, j] and the like: what is gathered or scattered, one index vector a place.
struct Advanced {
  Hlo indices;  ///< [index sizes..., number of indexed dimensions]
  GatherDims dims;
  Dims result;
};

/// Indices next to each other leave their result in their place, others leave it in front.
Advanced advanced_of(Lowering& at, const Hlo& x, const std::vector<std::optional<Hlo>>& given) {
  Dims indexed;
  Dims free;
  at::DimVector sizes;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const bool has_index = i < static_cast<int64_t>(given.size()) && given[i].has_value();
    (has_index ? indexed : free).push_back(i);
    if (has_index) sizes = at::infer_size_dimvector(sizes, given[i]->sizes);
  }
  const bool is_adjacent =
      indexed.back() - indexed.front() + 1 == static_cast<int64_t>(indexed.size());
  const int64_t front = is_adjacent ? indexed.front() : 0;
  const Dims of_index(sizes.begin(), sizes.end());
  const auto rank = static_cast<int64_t>(of_index.size());
  Advanced advanced;
  std::vector<Hlo> columns;
  Dims with_vector = of_index;
  with_vector.push_back(1);
  for (const int64_t dim : indexed) {
    const Hlo column = at.hlo.expand(wrapped(at, *given[dim], x.sizes[dim]), of_index);
    columns.push_back(at.hlo.reshape(column, with_vector));
  }
  advanced.indices = at.hlo.concatenate(columns, rank);
  advanced.dims = {.collapsed = indexed,
                   .start_index_map = indexed,
                   .index_vector_dim = rank,
                   .slice_sizes = x.sizes};
  for (const int64_t dim : indexed) advanced.dims.slice_sizes[dim] = 1;
  for (int64_t i = 0; i < static_cast<int64_t>(free.size()); ++i) {
    advanced.dims.offset.push_back(i < front ? i : i + rank);
    advanced.result.push_back(x.sizes[free[i]]);
  }
  advanced.result.insert(advanced.result.begin() + front, of_index.begin(), of_index.end());
  return advanced;
}

ScatterDims scatter_dims(const GatherDims& dims) {
  return {.update_window = dims.offset,
          .inserted_window = dims.collapsed,
          .scatter_dims_to_operand = dims.start_index_map,
          .index_vector_dim = dims.index_vector_dim};
}

void lower_index(Lowering& at) {
  const Hlo x = at.tensor(0);
  const Advanced advanced = advanced_of(at, x, at.optional_tensors(1));
  at.give(at.hlo.gather(x, advanced.indices, advanced.dims, advanced.result));
}

bool is_mask(const Hlo& index) { return index.dtype == at::kBool || index.dtype == at::kByte; }

/// x where a mask over its first dimensions is set: only for one value, as the condition has it.
void put_masked(Lowering& at, const Hlo& x, const Hlo& mask, bool accumulate) {
  Dims dims(mask.sizes.size());
  std::iota(dims.begin(), dims.end(), 0);
  const Hlo chosen = at.hlo.broadcast_in_dim(at.hlo.convert(mask, at::kBool), x.sizes, dims);
  Hlo value = at.hlo.expand(at.hlo.reshape(at.tensor(2, x.dtype), {}), x.sizes);
  if (accumulate) value = at.hlo.binary("add", x, value);
  at.give(at.hlo.select(chosen, value, x));
}

/// self, indices, values, accumulate
void lower_index_put(Lowering& at) {
  const Hlo x = at.tensor(0);
  const auto indices = at.optional_tensors(1);
  if (indices.size() == 1 && is_mask(*indices[0])) {
    return put_masked(at, x, *indices[0], at.flag(3));
  }
  const Advanced advanced = advanced_of(at, x, indices);
  const Hlo values = at.hlo.expand(at.tensor(2, x.dtype), advanced.result);
  at.give(at.hlo.scatter(at.flag(3) ? "add" : "", x, advanced.indices, values,
                         scatter_dims(advanced.dims)));
}

/// One index a slice of a dimension.
Advanced slices_of(Lowering& at, const Hlo& x, int64_t dim, const Hlo& index) {
  std::vector<std::optional<Hlo>> given(static_cast<size_t>(x.rank()));
  given[dim] = at.hlo.reshape(index, {index.numel()});
  return advanced_of(at, x, given);
}

/// A tensor without dimensions as one of one, and which dimension argument 1 names.
std::pair<Hlo, int64_t> with_dim(Lowering& at, size_t tensor) {
  const Hlo x = at.tensor(tensor);
  if (x.rank() == 0) return {at.hlo.reshape(x, {1}), 0};
  return {x, at.dim(1, x.rank())};
}

void lower_index_select(Lowering& at) {
  const auto [x, dim] = with_dim(at, 0);
  const Advanced advanced = slices_of(at, x, dim, at.tensor(2));
  const Hlo chosen = at.hlo.gather(x, advanced.indices, advanced.dims, advanced.result);
  at.give(at.hlo.reshape(chosen, at.sizes()));
}

/// self, dim, index, source[, alpha]: by "add", or "" for a copy.
LowerFunction into_slices(std::string_view name) {
  return [name](Lowering& at) {
    const auto [x, dim] = with_dim(at, 0);
    const Advanced advanced = slices_of(at, x, dim, at.tensor(2));
    Hlo source = at.hlo.reshape(at.tensor(3, x.dtype), advanced.result);
    if (name == "add" && at.number(4) != 1) {
      const Hlo alpha = at.spread(at.scalar(4, x.dtype), source);
      source = at.hlo.binary("multiply", source, alpha);
    }
    const Hlo written =
        at.hlo.scatter(name, x, advanced.indices, source, scatter_dims(advanced.dims));
    at.give(at.hlo.reshape(written, at.sizes()));
  };
}

void lower_index_fill(Lowering& at) {
  const auto [x, dim] = with_dim(at, 0);
  const Advanced advanced = slices_of(at, x, dim, at.tensor(2));
  const Hlo value = at.hlo.reshape(at.tensor(3, x.dtype), {});
  const Hlo written = at.hlo.scatter("", x, advanced.indices, at.hlo.expand(value, advanced.result),
                                     scatter_dims(advanced.dims));
  at.give(at.hlo.reshape(written, at.sizes()));
}

/// The places that torch.gather and torch.scatter name: index[i][j][k] in one dimension, and i, j,
/// k in the others.
Hlo element_places(Lowering& at, const Hlo& x, int64_t dim, const Hlo& index) {
  std::vector<Hlo> columns;
  Dims with_vector = index.sizes;
  with_vector.push_back(1);
  for (int64_t i = 0; i < x.rank(); ++i) {
    const Hlo place =
        i == dim ? wrapped(at, index, x.sizes[dim]) : at.hlo.iota(at::kLong, index.sizes, i);
    columns.push_back(at.hlo.reshape(place, with_vector));
  }
  return at.hlo.concatenate(columns, index.rank());
}

Dims all_dims(int64_t rank) {
  Dims dims(rank);
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

Hlo gather_elements(Lowering& at, const Hlo& x, int64_t dim, const Hlo& index) {
  const GatherDims dims{.collapsed = all_dims(x.rank()),
                        .start_index_map = all_dims(x.rank()),
                        .index_vector_dim = x.rank(),
                        .slice_sizes = Dims(x.sizes.size(), 1)};
  return at.hlo.gather(x, element_places(at, x, dim, index), dims, index.sizes);
}

/// As many as the index has in every other dimension.
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
  at.give(at.hlo.reshape(found, at.sizes()));
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

/// How many elements of the mask are set before each, and itself: as one row.
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

/// elements, test_elements, assume_unique, invert
void lower_isin(Lowering& at) {
  const at::ScalarType in = at.promoted({0, 1});
  const Hlo x = at.hlo.expand(at.tensor(0, in), at.sizes());
  const Hlo test = at.tensor(1, in);
  Dims sizes = x.sizes;
  sizes.push_back(test.numel());
  const Hlo row = at.hlo.expand(at.hlo.reshape(test, {test.numel()}), sizes);
  const Hlo is_same =
      at.hlo.compare("EQ", at.hlo.broadcast_in_dim(x, sizes, all_dims(x.rank())), row);
  const Hlo found = at.hlo.reduce("or", is_same, at.hlo.constant(false, at::kBool), {x.rank()});
  at.give(at.flag(3) ? at.hlo.unary("not", found) : found);
}

}  // namespace

void add_indexing(LoweringTable& table) {
  table["aten::index.Tensor"] = lower_index;
  table["aten::index_put"] = table["aten::_index_put_impl"] = lower_index_put;
  table["aten::_index_put_impl_"] = lower_index_put;
  table["aten::index_select"] = lower_index_select;
  table["aten::index_add"] = into_slices("add");
  table["aten::index_copy"] = into_slices("");
  table["aten::index_fill.int_Scalar"] = table["aten::index_fill.int_Tensor"] = lower_index_fill;
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
  table["aten::isin.Tensor_Tensor"] = table["aten::isin.Tensor_Scalar"] = lower_isin;
}

}  // namespace levin::xla
