#include <ATen/Context.h>
#include <ATen/native/CPUBlas.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "levin/graph/replay/matmul_impl.h"

#if defined(__x86_64__) && __has_include(<fbgemm/Utils.h>)
#include <fbgemm/Utils.h>
#define LEVIN_HAS_TRANSPOSE
#endif

namespace levin::graph {
namespace {

// Tiles of a and b and their product fit into the second level of caches.
constexpr int64_t kTileRows = 128;
constexpr int64_t kTileColumns = 256;
// Rows of a packed tile that lie a power of two apart would share the places of one cache set.
constexpr int64_t kPadding = 16;

bool has_contiguous_rows(const at::Tensor& matrices) {
  return matrices.stride(-1) == 1 && matrices.stride(-2) >= matrices.size(-1);
}

bool has_contiguous_columns(const at::Tensor& matrices) {
  return matrices.stride(-2) == 1 && matrices.stride(-1) >= matrices.size(-2);
}

bool are_floats(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.is_cpu() && tensor.numel() > 0;
}

int64_t batch_stride(const at::Tensor& matrices) {
  return matrices.dim() == 3 ? matrices.stride(0) : 0;
}

bool is_one(const c10::IValue& number) { return number.isScalar() && number.toScalar().equal(1); }

/// to [columns, rows] is from [rows, columns] transposed; the strides are those of rows.
void transpose(int64_t rows, int64_t columns, const float* from, int64_t from_stride, float* to,
               int64_t to_stride) {
#ifdef LEVIN_HAS_TRANSPOSE
  fbgemm::transpose_simd<float>(rows, columns, from, from_stride, to, to_stride);
#else
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
#endif
}

}  // namespace

std::optional<MatmulOperands> matmul_operands(const c10::OperatorHandle& op,
                                              const torch::jit::Stack& arguments) {
  const c10::OperatorName& name = op.operator_name();
  if (name.overload_name != "out") return std::nullopt;
  const bool multiplies = name.name == "aten::mm" || name.name == "aten::bmm";
  const bool adds = (name.name == "aten::addmm" || name.name == "aten::baddbmm") &&
                    is_one(arguments[3]) && is_one(arguments[4]);
  if (!multiplies && !adds) return std::nullopt;
  const size_t first = adds ? 1 : 0;
  const MatmulOperands operands{
      .out = arguments.back().toTensor(),
      .a = arguments[first].toTensor(),
      .b = arguments[first + 1].toTensor(),
      .added = adds ? arguments[0].toTensor() : at::Tensor(),
  };
  const auto& [out, a, b, added] = operands;
  const bool fits = are_floats(out) && are_floats(a) && are_floats(b) && has_contiguous_rows(out) &&
                    (has_contiguous_rows(a) || has_contiguous_columns(a)) &&
                    (has_contiguous_rows(b) || has_contiguous_columns(b));
  if (!fits || !adds) return fits ? std::optional(operands) : std::nullopt;
  const bool is_row = added.dim() == 1 && added.size(0) == operands.n() && added.is_contiguous();
  const bool is_added =
      are_floats(added) && (is_row || (added.sizes() == out.sizes() && has_contiguous_rows(added)));
  return is_added ? std::optional(operands) : std::nullopt;
}

bool Matmul::is_available() {
  const std::array<float, 1> one{1.0F};
  std::array<float, 1> product{0.0F};
  try {
    at::native::cpublas::brgemm(1, 1, 1, 1, 1, 1, false, one.data(), one.data(), product.data());
  } catch (const c10::Error&) {
    return false;
  }
  return product[0] == 1.0F;
}

int64_t Matmul::scratch_numel(const MatmulOperands& operands, int64_t block_k) {
  return packed_numel(Layout(operands.a), std::min(kTileRows, operands.m()), block_k) +
         packed_numel(Layout(operands.b), block_k, std::min(kTileColumns, operands.n()));
}

/// The number of elements of a packed tile of that size; 0 if the tile is used in place.
int64_t Matmul::packed_numel(const Layout& layout, int64_t rows, int64_t columns) {
  return layout.is_transposed ? rows * (columns + kPadding) : 0;
}

Matmul::Layout::Layout(const at::Tensor& matrix)
    : stride(matrix.stride(-2)), is_transposed(!has_contiguous_rows(matrix)) {
  if (is_transposed) stride = matrix.stride(-1);
}

Matmul::Matmul(MatmulOperands operands, int64_t block_k, at::Tensor scratch)
    : operands_(std::move(operands)),
      a_(operands_.a),
      b_(operands_.b),
      block_k_(block_k),
      scratch_(std::move(scratch)) {}

Matmul::Tile Matmul::tile(const float* matrix, const Layout& layout, Extent rows, Extent columns,
                          float* packed) {
  if (!layout.is_transposed) {
    return {matrix + rows.begin * layout.stride + columns.begin, layout.stride};
  }
  const int64_t stride = columns.size + kPadding;
  transpose(columns.size, rows.size, matrix + columns.begin * layout.stride + rows.begin,
            layout.stride, packed, stride);
  return {packed, stride};
}

/// Puts what is added to the product where its sums come.
void Matmul::begin_sums(const float* added, float* out) const {
  const int64_t added_stride = operands_.added.dim() == 1 ? 0 : operands_.added.stride(-2);
  const int64_t out_stride = operands_.out.stride(-2);
  const size_t row_bytes = static_cast<size_t>(operands_.n()) * sizeof(float);
  for (int64_t i = 0; i < operands_.m(); ++i) {
    std::memcpy(out + i * out_stride, added + i * added_stride, row_bytes);
  }
}

void Matmul::operator()() const {
  const auto& [out, a, b, added] = operands_;
  const auto* from_a = a.const_data_ptr<float>();
  const auto* from_b = b.const_data_ptr<float>();
  auto* to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < operands_.batches(); ++i) {
    float* sums = to + i * batch_stride(out);
    if (added.defined()) {
      begin_sums(added.const_data_ptr<float>() + i * batch_stride(added), sums);
    }
    multiply(from_a + i * batch_stride(a), from_b + i * batch_stride(b), sums);
  }
}

void Matmul::multiply(const float* a, const float* b, float* out) const {
  const int64_t m = operands_.m(), n = operands_.n(), k = operands_.k();
  const int64_t out_stride = operands_.out.stride(-2);
  const bool adds = operands_.added.defined();
  auto* packed_a = scratch_.defined() ? scratch_.mutable_data_ptr<float>() : nullptr;
  auto* packed_b = packed_a + packed_numel(a_, std::min(kTileRows, m), block_k_);
  for (int64_t column = 0; column < n; column += kTileColumns) {
    const Extent columns{column, std::min(kTileColumns, n - column)};
    for (int64_t step = 0; step < k; step += block_k_) {
      const Extent steps{step, std::min(block_k_, k - step)};
      const Tile of_b = tile(b, b_, steps, columns, packed_b);
      for (int64_t row = 0; row < m; row += kTileRows) {
        const Extent rows{row, std::min(kTileRows, m - row)};
        const Tile of_a = tile(a, a_, rows, steps, packed_a);
        at::native::cpublas::brgemm(rows.size, columns.size, steps.size, of_a.stride, of_b.stride,
                                    out_stride, adds || step > 0, of_a.data, of_b.data,
                                    out + row * out_stride + column);
      }
    }
  }
}

}  // namespace levin::graph
