// Slices of a tensor, chosen by indices that are tensors. An index beyond the tensor's sizes, which
// ATen refuses, reads NaN (of whole numbers the nearest element) and writes none.
#include <ATen/ExpandUtils.h>

#include <numeric>

#include "levin/xla/stablehlo/indices.h"

namespace levin::xla {
namespace {

/// The gather or scatter of x[i, :, j] and the like, with one index vector per position.
struct Advanced {
  Hlo indices;  ///< [index sizes..., number of indexed dimensions]
  GatherDims dims;
  Dims result;
  std::vector<std::pair<Hlo, int64_t>> places;  ///< places in each indexed dimension, and its size
  Dims place_dims;                              ///< the result's that they stand in
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
    advanced.places.emplace_back(column, x.sizes[dim]);
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
  for (int64_t i = 0; i < rank; ++i) advanced.place_dims.push_back(front + i);
  return advanced;
}

Hlo read(Lowering& at, const Hlo& x, const Advanced& advanced) {
  Hlo found = at.hlo.gather(x, advanced.indices, advanced.dims, advanced.result);
  for (const auto& [places, size] : advanced.places) {
    found = nan_beyond(at, found, places, size, advanced.place_dims);
  }
  return found;
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
  at.give(read(at, x, advanced));
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

void lower_index_select(Lowering& at) {
  const auto [x, dim] = with_dim(at, 0);
  const Advanced advanced = slices_of(at, x, dim, at.tensor(2));
  at.give(at.hlo.reshape(read(at, x, advanced), at.sizes()));
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
  table["aten::isin.Tensor_Tensor"] = table["aten::isin.Tensor_Scalar"] = lower_isin;
}

}  // namespace levin::xla
