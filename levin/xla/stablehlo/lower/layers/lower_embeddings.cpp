// Rows of a table, sums of them in bags, and the gradients of both.
#include <algorithm>

#include "levin/xla/stablehlo/indices.h"
#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

/// table [V, D] at [n] -> [n, D]
Hlo rows_of(Lowering& at, const Hlo& table, const Hlo& places) {
  const GatherDims dims{.offset = {1},
                        .collapsed = {0},
                        .start_index_map = {0},
                        .index_vector_dim = 1,
                        .slice_sizes = {1, table.sizes[1]}};
  const Hlo column = at.hlo.reshape(places, {places.numel(), 1});
  return at.hlo.gather(table, column, dims, {places.numel(), table.sizes[1]});
}

/// Rows that the user names.
Hlo named_rows(Lowering& at, const Hlo& table, const Hlo& places) {
  return nan_beyond(at, rows_of(at, table, places), places, table.sizes[0], {0});
}

constexpr int64_t kComparedRows = 16;  // more of them are scattered into

/// Rows [n, D] added to row places[n] of [num_rows, D]; places beyond are left out. A product with
/// ones and zeros would spread an infinite gradient over all rows.
Hlo add_rows(Lowering& at, const Hlo& rows, const Hlo& places, int64_t num_rows) {
  const int64_t count = rows.sizes[0];
  const int64_t width = rows.sizes[1];
  const Hlo zero = at.hlo.constant(0, rows.dtype);
  if (num_rows <= kComparedRows) {
    const Dims cube = {count, num_rows, width};
    const Hlo place = at.hlo.broadcast_in_dim(at.hlo.reshape(places, {count}), cube, {0});
    const Hlo is_it = at.hlo.compare("EQ", at.hlo.iota(places.dtype, cube, 1), place);
    const Hlo spread = at.hlo.broadcast_in_dim(rows, cube, {0, 2});
    return at.sum(at.hlo.select(is_it, spread, at.like(0, spread)), {0}, /*keepdim=*/false);
  }
  const ScatterDims dims{.update_window = {1},
                         .inserted_window = {0},
                         .scatter_dims_to_operand = {0},
                         .index_vector_dim = 1};
  return at.hlo.scatter("add", at.hlo.expand(zero, {num_rows, width}),
                        at.hlo.reshape(places, {count, 1}), rows, dims);
}

/// Returns for each place how often it occurs among the places, f32 or f64.
Hlo frequencies(Lowering& at, const Hlo& places, int64_t num_rows, at::ScalarType dtype) {
  const Hlo ones = at.hlo.constant(1, dtype, {places.numel(), 1});
  return rows_of(at, add_rows(at, ones, places, num_rows), places);
}

Hlo flat(Lowering& at, size_t index, at::ScalarType dtype) {
  const Hlo x = at.tensor(index, dtype);
  return at.hlo.reshape(x, {x.numel()});
}

/// Places, and a number that is no row's where they are the padding.
Hlo without_padding(Lowering& at, const Hlo& places, int64_t padding, int64_t num_rows) {
  if (padding < 0) return places;
  const Term index(at.hlo, places);
  return where(same(index, static_cast<double>(padding)), static_cast<double>(num_rows), index);
}

/// weight, indices, padding_idx, scale_grad_by_freq, sparse
void lower_embedding(Lowering& at) {
  const Hlo weight = at.tensor(0);
  at.give(at.hlo.reshape(named_rows(at, weight, flat(at, 1, at::kLong)), at.sizes()));
}

/// grad, indices, num_weights, padding_idx, scale_grad_by_freq
void lower_embedding_backward(Lowering& at) {
  const int64_t num_rows = at.integer(2);
  const int64_t width = at.sizes().back();
  const Hlo places = flat(at, 1, at::kLong);
  const Hlo grad = at.tensor(0, Lowering::compute_dtype(at.dtype()));
  Hlo rows = at.hlo.reshape(grad, {places.numel(), width});
  if (at.flag(4)) {
    const Hlo counts = frequencies(at, places, num_rows, rows.dtype);
    rows = at.hlo.binary("divide", rows, at.hlo.expand(counts, rows.sizes));
  }
  at.give(add_rows(at, rows, without_padding(at, places, at.integer(3), num_rows), num_rows));
}

/// self, indices, max_norm, norm_type: rows that are named and longer are shortened.
void lower_embedding_renorm(Lowering& at) {
  const Hlo weight = at.tensor(0);
  const Term x(at.hlo, at.hlo.convert(weight, Lowering::compute_dtype(weight.dtype)));
  const double p = at.number(3);
  const Term size = abs(x);
  const Term powers = p == 1 ? size : p == 2 ? size * size : size.binary("power", size.number(p));
  const Term total(at.hlo, at.sum(powers, {1}, /*keepdim=*/true));
  const Term norm = p == 1   ? total
                    : p == 2 ? sqrt(total)
                             : total.binary("power", total.number(1 / p));
  const Hlo places = flat(at, 1, at::kLong);
  const Hlo ones = at.hlo.constant(1, at::kInt, {places.numel(), 1});
  const Term is_named(at.hlo,
                      at.hlo.convert(add_rows(at, ones, places, weight.sizes[0]), at::kBool));
  const Term is_long = is_named & (norm > at.number(2));
  const Term factor = where(is_long, at.number(2) / (norm + 1e-7), 1);
  at.give(where(is_long.expanded(x.sizes()), x * factor.expanded(x.sizes()), x));
}

enum BagMode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

struct Bags {
  Hlo places;  ///< [n]: the rows
  Hlo bag;     ///< [n]: which bag each belongs to; num_bags for the padding
  Hlo counts;  ///< [num_bags, 1]: how many rows a bag has
  int64_t num_bags = 0;
};

/// A row's bag is the last one that begins at it or before.
Bags bags_of(Lowering& at, size_t indices, size_t offsets, int64_t num_bags, int64_t padding,
             at::ScalarType dtype) {
  const Hlo places = flat(at, indices, at::kLong);
  Hlo starts = flat(at, offsets, at::kLong);
  starts = at.hlo.slice(starts, {0}, {num_bags}, {1});
  const Dims table = {places.numel(), num_bags};
  const Hlo begins = at.hlo.compare("GE", at.hlo.iota(at::kLong, table, 0),
                                    at.hlo.broadcast_in_dim(starts, table, {1}));
  Term bag = Term(at.hlo, at.sum(at.hlo.convert(begins, at::kLong), {1}, /*keepdim=*/false)) - 1;
  if (padding >= 0) {
    bag = where(same(Term(at.hlo, places), static_cast<double>(padding)),
                static_cast<double>(num_bags), bag);
  }
  const Hlo ones = at.hlo.constant(1, dtype, {places.numel(), 1});
  return {places, bag, add_rows(at, ones, bag, num_bags), num_bags};
}

/// The greatest row of each bag in each column, and which row of the table it was, of the first of
/// equal ones; 0 of an empty bag.
std::pair<Hlo, Hlo> greatest_of(Lowering& at, const Hlo& rows, const Bags& bags) {
  const Dims result = {bags.num_bags, rows.sizes[1]};
  const ScatterDims dims{.update_window = {1},
                         .inserted_window = {0},
                         .scatter_dims_to_operand = {0},
                         .index_vector_dim = 1};
  const Hlo column = at.hlo.reshape(bags.bag, {bags.places.numel(), 1});
  const Term most(
      at.hlo, at.hlo.scatter("maximum", at.hlo.expand(at.hlo.lowest(rows.dtype), result), column,
                             rows, dims));
  const Term order(at.hlo, at.hlo.iota(at::kLong, rows.sizes, 0));
  const Term is_most = same(Term(at.hlo, rows_of(at, most, bags.bag)), Term(at.hlo, rows));
  const auto count = static_cast<double>(bags.places.numel());
  const Hlo none = at.hlo.constant(bags.places.numel(), at::kLong, result);
  const Term first(at.hlo,
                   at.hlo.scatter("minimum", none, column, where(is_most, order, count), dims));
  const Hlo flat_first = at.hlo.reshape(minimum(first, count - 1), {first.hlo().numel()});
  const Hlo table = at.hlo.reshape(bags.places, {bags.places.numel(), 1});
  const Term chosen(at.hlo, at.hlo.reshape(rows_of(at, table, flat_first), result));
  const Term is_empty = same(Term(at.hlo, bags.counts), 0);
  const Term no_row(at.hlo, at.hlo.expand(is_empty, result));
  return {where(no_row, 0, most), where(no_row, 0, chosen)};
}

/// weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
/// include_last_offset, padding_idx -> output, offset2bag, bag_size, max_indices
void lower_embedding_bag(Lowering& at) {
  const at::ScalarType in = Lowering::compute_dtype(at.dtype());
  const int64_t num_bags = at.sizes()[0];
  const Bags bags = bags_of(at, 1, 2, num_bags, at.integer(8), in);
  Hlo rows = named_rows(at, at.tensor(0, in), bags.places);
  if (at.has(6)) {
    const Hlo weights = at.hlo.reshape(at.tensor(6, in), {bags.places.numel(), 1});
    rows = at.hlo.binary("multiply", rows, at.hlo.expand(weights, rows.sizes));
  }
  const Hlo sizes = at.hlo.reshape(bags.counts, {num_bags});
  const auto give_rest = [&](const Hlo& greatest) {
    // The CPU leaves it out of sums, where only backward would look at it, and does not.
    const bool is_left_out = bags.bag.numel() != 0 && at.sizes(1) == Dims{0};
    at.give(is_left_out ? at.hlo.constant(0, at::kLong, {0})
                        : at.hlo.reshape(bags.bag, at.sizes(1)));
    at.give(sizes);
    at.give(greatest);
  };
  if (at.integer(4) == kMax) {
    if (bags.places.numel() == 0) {
      at.give(at.hlo.constant(0, at.dtype()));
      return give_rest(at.hlo.constant(0, at::kLong));
    }
    const auto [most, chosen] = greatest_of(at, rows, bags);
    at.give(most);
    return give_rest(chosen);
  }
  Term total(at.hlo, add_rows(at, rows, bags.bag, num_bags));
  if (at.integer(4) == kMean) {
    total = total / maximum(Term(at.hlo, bags.counts), 1).expanded(total.sizes());
  }
  at.give(total);
  give_rest(at.hlo.constant(0, at::kLong));
}

/// The gradient of each row [n, D] of a sum or mean.
Hlo bag_gradient(Lowering& at, const Bags& bags, int64_t mode, const Hlo& grad) {
  Term of_bag(at.hlo, grad);
  if (mode == kMean) {
    of_bag = of_bag / maximum(Term(at.hlo, bags.counts), 1).expanded(of_bag.sizes());
  }
  return rows_of(at, of_bag, bags.bag);
}

/// grad, indices, offsets, offset2bag, bag_size, max_indices, num_weights, scale_grad_by_freq,
/// mode, sparse (dense all the same), per_sample_weights, padding_idx
void lower_embedding_bag_backward(Lowering& at) {
  const Hlo grad = at.tensor(0, Lowering::compute_dtype(at.dtype()));
  const int64_t num_bags = grad.sizes[0];
  const int64_t width = grad.sizes[1];
  const int64_t num_rows = at.integer(6);
  const Bags bags = bags_of(at, 1, 2, num_bags, at.integer(11), grad.dtype);
  if (at.integer(8) == kMax) {
    const Term is_full(at.hlo, at.hlo.convert(bags.counts, at::kBool));
    const Term given = where(is_full.expanded(grad.sizes), Term(at.hlo, grad), 0);
    const Dims cell = {num_bags * width, 1};
    const Hlo row = at.hlo.reshape(at.tensor(5, at::kLong), cell);
    const Hlo column = at.hlo.reshape(at.hlo.iota(at::kLong, grad.sizes, 1), cell);
    const ScatterDims dims{
        .inserted_window = {0, 1}, .scatter_dims_to_operand = {0, 1}, .index_vector_dim = 1};
    const Hlo zeros = at.hlo.constant(0, grad.dtype, {num_rows, width});
    return at.give(at.hlo.scatter("add", zeros, at.hlo.concatenate({row, column}, 1),
                                  at.hlo.reshape(given, {num_bags * width}), dims));
  }
  Term rows(at.hlo, bag_gradient(at, bags, at.integer(8), grad));
  if (at.has(10)) {
    const Hlo weights = at.hlo.reshape(at.tensor(10, grad.dtype), {bags.places.numel(), 1});
    rows = rows * Term(at.hlo, at.hlo.expand(weights, rows.sizes()));
  }
  if (at.flag(7)) {
    const Hlo counts = frequencies(at, bags.places, num_rows, grad.dtype);
    rows = rows / Term(at.hlo, at.hlo.expand(counts, rows.sizes()));
  }
  const Hlo places = without_padding(at, bags.places, at.integer(11), num_rows);
  at.give(add_rows(at, rows, places, num_rows));
}

/// grad, weight, indices, offsets, offset2bag, mode, padding_idx
void lower_bag_weights_backward(Lowering& at) {
  const at::ScalarType in = Lowering::compute_dtype(at.dtype());
  const Hlo grad = at.tensor(0, in);
  const Bags bags = bags_of(at, 2, 3, grad.sizes[0], at.integer(6), in);
  const Hlo product = at.hlo.binary("multiply", rows_of(at, at.tensor(1, in), bags.places),
                                    rows_of(at, grad, bags.bag));
  const Term total(at.hlo, at.sum(product, {1}, /*keepdim=*/false));
  if (at.integer(6) < 0) return at.give(total);
  const Term is_padding = same(Term(at.hlo, bags.places), static_cast<double>(at.integer(6)));
  at.give(where(is_padding, 0, total));
}

}  // namespace

void add_embeddings(LoweringTable& table) {
  table["aten::embedding"] = lower_embedding;
  table["aten::embedding_dense_backward"] = lower_embedding_backward;
  table["aten::embedding_renorm"] = lower_embedding_renorm;
  table["aten::embedding_renorm_"] = lower_embedding_renorm;
  table["aten::_embedding_bag"] = lower_embedding_bag;
  table["aten::_embedding_bag_forward_only"] = lower_embedding_bag;
  table["aten::_embedding_bag_backward"] = lower_embedding_bag_backward;
  table["aten::_embedding_bag_per_sample_weights_backward"] = lower_bag_weights_backward;
}

}  // namespace levin::xla
