// Views by strides: elements by their places in a memory that the program does not have.
#include <algorithm>
#include <numeric>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

/// Returns the dimensions in the order of their strides, the greatest first, without repeated ones.
std::vector<size_t> in_memory_order(const Dims& sizes, const Dims& strides) {
  std::vector<size_t> order;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] != 0 || sizes[i] == 1) order.push_back(i);
  }
  std::ranges::stable_sort(order, std::greater(),
                           [&](size_t i) { return std::pair(strides[i], sizes[i]); });
  return order;
}

/// Returns a dense tensor's values as one row, in the order of its memory.
Hlo memory_of(Lowering& at, const Hlo& x, at::IntArrayRef strides) {
  const std::vector<size_t> order = in_memory_order(x.sizes, strides.vec());
  Dims permutation(order.begin(), order.end());
  return at.hlo.reshape(at.hlo.transpose(x, permutation), {x.numel()});
}

/// Returns the place of each element of the view in the row.
Hlo places_of(Lowering& at, const Dims& sizes, const Dims& strides, int64_t offset) {
  Hlo places = at.hlo.constant(offset, at::kInt, sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] == 0 || sizes[i] == 1) continue;
    const Hlo step = at.like(strides[i], places);
    const Hlo index = at.hlo.iota(at::kInt, sizes, static_cast<int64_t>(i));
    places = at.hlo.binary("add", places, at.hlo.binary("multiply", index, step));
  }
  return places;
}

/// Returns whether the view is a dense part of the row, in whatever order its dims are.
bool is_dense(const Dims& sizes, const Dims& strides) {
  int64_t wanted = 1;
  const std::vector<size_t> order = in_memory_order(sizes, strides);
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    if (sizes[*i] == 1) continue;
    if (strides[*i] != wanted) return false;
    wanted *= sizes[*i];
  }
  return order.size() == sizes.size();
}

void lower_as_strided(Lowering& at) {
  const Hlo x = at.tensor(0);
  const auto& source = at.node.input(0)->type().strides;
  const Dims sizes = at.list(1);
  const Dims strides = at.list(2);
  const int64_t offset = at.integer(3, 0);
  const Hlo row = memory_of(at, x, source);
  int64_t numel = 1;
  for (const int64_t size : sizes) numel *= size;
  if (is_dense(sizes, strides)) {
    const Hlo part = at.hlo.slice(row, {offset}, {offset + numel}, {1});
    Dims in_order;
    Dims inverse(sizes.size());
    const std::vector<size_t> order = in_memory_order(sizes, strides);
    for (size_t i = 0; i < order.size(); ++i) {
      in_order.push_back(sizes[order[i]]);
      inverse[order[i]] = static_cast<int64_t>(i);
    }
    return at.give(at.hlo.transpose(at.hlo.reshape(part, in_order), inverse));
  }
  const GatherDims dims{.collapsed = {0},
                        .start_index_map = {0},
                        .index_vector_dim = static_cast<int64_t>(sizes.size()),
                        .slice_sizes = {1}};
  at.give(at.hlo.gather(row, places_of(at, sizes, strides, offset), dims, sizes));
}

/// x with the elements that the view looks at taken from the other.
void lower_as_strided_scatter(Lowering& at) {
  const Hlo x = at.tensor(0);
  const Hlo part = at.tensor(1, x.dtype);
  const auto& source = at.node.input(0)->type().strides;
  const Dims sizes = at.list(2);
  const Hlo row = memory_of(at, x, source);
  const Hlo places = places_of(at, sizes, at.list(3), at.integer(4, 0));
  const ScatterDims dims{.inserted_window = {0},
                         .scatter_dims_to_operand = {0},
                         .index_vector_dim = static_cast<int64_t>(sizes.size())};
  const Hlo written = at.hlo.scatter("", row, places, part, dims);
  const std::vector<size_t> order = in_memory_order(x.sizes, {source.begin(), source.end()});
  Dims in_order;
  Dims inverse(x.sizes.size());
  for (size_t i = 0; i < order.size(); ++i) {
    in_order.push_back(x.sizes[order[i]]);
    inverse[order[i]] = static_cast<int64_t>(i);
  }
  at.give(at.hlo.transpose(at.hlo.reshape(written, in_order), inverse));
}

}  // namespace

void add_strided_views(LoweringTable& table) {
  table["aten::as_strided"] = lower_as_strided;
  table["aten::as_strided_scatter"] = lower_as_strided_scatter;
}

}  // namespace levin::xla
