#include "tools/xla/tpu_padding.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>
#include <span>

namespace levin::tools {
namespace {

constexpr int64_t kRows = 8, kLanes = 128;

int64_t rounded_up(int64_t size, int64_t to) { return (size + to - 1) / to * to; }

/// Fewer than 8 rows go into tiles of 1, 2 or 4.
int64_t padded_rows(int64_t size) {
  if (size >= kRows) return rounded_up(size, kRows);
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
}

/// Vectors lie in tiles of up to 1024.
int64_t padded_vector(int64_t size) {
  const auto ceiling = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
  return rounded_up(size, std::clamp<int64_t>(ceiling, kLanes, kRows * kLanes));
}

int64_t product(std::span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies());
}

std::span<const int64_t> sizes_of(const graph::Node& node, size_t input) {
  const auto& sizes = node.input(input)->type().sizes;
  return {sizes.data(), sizes.size()};
}

MatrixProduct matrix_product(const graph::Node& node, size_t left, size_t right) {
  const auto a = sizes_of(node, left), b = sizes_of(node, right);
  const size_t last = a.size() - 1;
  return {.count = product(a.first(last - 1)),
          .rows = a[last - 1],
          .inner = a[last],
          .columns = b[last]};
}

/// [batch, in, ...] by [out, in / groups, kernel...]: for each place of the kernel and of the
/// image, channels by channels over the batch.
MatrixProduct convolution(std::span<const int64_t> input, std::span<const int64_t> weight,
                          std::span<const int64_t> output) {
  return {.count = product(weight.subspan(2)) * product(output.subspan(2)),
          .rows = input[0],
          .inner = weight[1],
          .columns = weight[0]};
}

/// Queries [B, H, L, E] by keys [B, H, S, E], and what comes of it by values [B, H, S, E]; in the
/// backward pass two of the first kind and three of the second.
std::vector<MatrixProduct> attention(std::span<const int64_t> query, std::span<const int64_t> key,
                                     size_t num_inner, size_t num_outer) {
  const int64_t heads = query[0] * query[1];
  const MatrixProduct scores{
      .count = heads, .rows = query[2], .inner = query[3], .columns = key[2]};
  const MatrixProduct values{
      .count = heads, .rows = query[2], .inner = key[2], .columns = query[3]};
  std::vector<MatrixProduct> products(num_inner, scores);
  products.insert(products.end(), num_outer, values);
  return products;
}

}  // namespace

int64_t padded_bytes(c10::IntArrayRef sizes, at::ScalarType dtype) {
  const auto width = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t numel = product({sizes.data(), sizes.size()});
  if (numel == 0) return 0;
  if (sizes.empty()) return kLanes * width;
  if (sizes.size() == 1) return padded_vector(sizes[0]) * width;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t row = 0; row < sizes.size(); ++row) {
    for (size_t lane = 0; lane < sizes.size(); ++lane) {
      if (row == lane) continue;
      const int64_t others = numel / (sizes[row] * sizes[lane]);
      least = std::min(least, others * padded_rows(sizes[row]) * rounded_up(sizes[lane], kLanes));
    }
  }
  return least * width;
}

double MatrixProduct::multiplications() const {
  return static_cast<double>(count) * static_cast<double>(rows) * static_cast<double>(inner) *
         static_cast<double>(columns);
}

MatrixProduct MatrixProduct::padded() const {
  MatrixProduct by_rows = *this, by_columns = *this;
  by_rows.inner = by_columns.inner = rounded_up(inner, kLanes);
  by_rows.rows = rounded_up(rows, kRows);
  by_rows.columns = rounded_up(columns, kLanes);
  by_columns.rows = rounded_up(rows, kLanes);
  by_columns.columns = rounded_up(columns, kRows);
  return by_rows.multiplications() <= by_columns.multiplications() ? by_rows : by_columns;
}

std::string MatrixProduct::text() const {
  return fmt::format("{}{} x {} x {}", count == 1 ? "" : fmt::format("{} of ", count), rows, inner,
                     columns);
}

std::vector<MatrixProduct> products_of(const graph::Node& node) {
  const std::string_view target = node.target();
  if (target == "aten::mm" || target == "aten::bmm") return {matrix_product(node, 0, 1)};
  if (target == "aten::addmm" || target == "aten::baddbmm") return {matrix_product(node, 1, 2)};
  if (target == "aten::convolution") {
    const auto& output = node.output().type().sizes;
    return {convolution(sizes_of(node, 0), sizes_of(node, 1), {output.data(), output.size()})};
  }
  if (target == "aten::convolution_backward") {
    return {convolution(sizes_of(node, 1), sizes_of(node, 2), sizes_of(node, 0))};
  }
  if (target == "aten::_scaled_dot_product_flash_attention_for_cpu") {
    return attention(sizes_of(node, 0), sizes_of(node, 1), 1, 1);
  }
  if (target == "aten::_scaled_dot_product_flash_attention_for_cpu_backward") {
    return attention(sizes_of(node, 1), sizes_of(node, 2), 2, 3);
  }
  return {};
}

}  // namespace levin::tools
