#include <ATen/Context.h>
#include <ATen/native/CPUBlas.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "levin/graph/matmul_impl.h"

#if defined(__x86_64__) && __has_include(<fbgemm/Utils.h>)
#include <fbgemm/Utils.h>
#define LEVIN_HAS_TRANSPOSE
#endif

namespace levin::graph {
namespace {

// Tiles of a and b, and what they give, fit into the second level of caches.
constexpr int64_t kTileRows = 128;
constexpr int64_t kTileColumns = 256;
// Rows of a packed tile that lie a power of two apart would share the places of one cache set.
constexpr int64_t kPadding = 16;

bool has_contiguous_rows(const at::Tensor& matrix) {
  return matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1);
}

bool is_float_matrix(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 2 && tensor.scalar_type() == at::kFloat &&
         tensor.is_cpu() && tensor.numel() > 0;
}

bool is_one(const c10::IValue& number) { return number.isScalar() && number.toScalar().equal(1); }

#ifdef LEVIN_HAS_TRANSPOSE
/// to [columns, rows] is from [rows, columns] transposed; the strides are those of rows.
void transpose(int64_t rows, int64_t columns, const float* from, int64_t from_stride, float* to,
               int64_t to_stride) {
  fbgemm::transpose_simd<float>(rows, columns, from, from_stride, to, to_stride);
}
#else
void transpose(int64_t, int64_t, const float*, int64_t, float*, int64_t) {}
#endif

}  // namespace

std::optional<MatmulOperands> matmul_operands(const c10::OperatorHandle& op,
                                              const torch::jit::Stack& arguments) {
  const c10::OperatorName& name = op.operator_name();
  MatmulOperands operands;
  if (name.overload_name != "out") return std::nullopt;
  if (name.name == "aten::mm") {
    operands = {arguments[2].toTensor(), arguments[0].toTensor(), arguments[1].toTensor(), {}};
  } else if (name.name == "aten::addmm" && is_one(arguments[3]) && is_one(arguments[4])) {
    operands = {arguments[5].toTensor(), arguments[1].toTensor(), arguments[2].toTensor(),
                arguments[0].toTensor()};
  } else {
    return std::nullopt;
  }
  const auto& [out, a, b, added] = operands;
  if (!is_float_matrix(out) || !is_float_matrix(a) || !is_float_matrix(b)) return std::nullopt;
  const bool fits = has_contiguous_rows(out) &&
                    (has_contiguous_rows(a) || has_contiguous_rows(a.t())) &&
                    (has_contiguous_rows(b) || has_contiguous_rows(b.t()));
  if (!fits || !added.defined()) return fits ? std::optional(operands) : std::nullopt;
  const bool is_row = added.dim() == 1 && added.scalar_type() == at::kFloat && added.is_cpu() &&
                      added.size(0) == operands.n() && added.is_contiguous();
  const bool is_matrix =
      is_float_matrix(added) && added.sizes() == out.sizes() && has_contiguous_rows(added);
  return is_row || is_matrix ? std::optional(operands) : std::nullopt;
}

bool Matmul::is_available() {
#ifdef LEVIN_HAS_TRANSPOSE
  const std::array<float, 1> one{1.0F};
  std::array<float, 1> product{0.0F};
  try {
    at::native::cpublas::brgemm(1, 1, 1, 1, 1, 1, false, one.data(), one.data(), product.data());
  } catch (const c10::Error&) {
    return false;
  }
  return product[0] == 1.0F;
#else
  return false;
#endif
}

int64_t Matmul::scratch_numel(const MatmulOperands& operands, int64_t block_k) {
  const int64_t of_a = std::min(kTileRows, operands.m()) * (block_k + kPadding);
  const int64_t of_b = block_k * (std::min(kTileColumns, operands.n()) + kPadding);
  return (Layout(operands.a).is_transposed ? of_a : 0) +
         (Layout(operands.b).is_transposed ? of_b : 0);
}

Matmul::Layout::Layout(const at::Tensor& matrix)
    : stride(matrix.stride(0)), is_transposed(!has_contiguous_rows(matrix)) {
  if (is_transposed) stride = matrix.stride(1);
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
void Matmul::begin_sums() const {
  const auto& [out, a, b, added] = operands_;
  const auto* from = added.const_data_ptr<float>();
  auto* to = out.mutable_data_ptr<float>();
  const int64_t from_stride = added.dim() == 1 ? 0 : added.stride(0);
  const size_t row_bytes = static_cast<size_t>(operands_.n()) * sizeof(float);
  for (int64_t i = 0; i < operands_.m(); ++i) {
    std::memcpy(to + i * out.stride(0), from + i * from_stride, row_bytes);
  }
}

void Matmul::operator()() const {
  const int64_t m = operands_.m(), n = operands_.n(), k = operands_.k();
  const auto* a = operands_.a.const_data_ptr<float>();
  const auto* b = operands_.b.const_data_ptr<float>();
  auto* out = operands_.out.mutable_data_ptr<float>();
  const int64_t out_stride = operands_.out.stride(0);
  auto* packed_b = scratch_.defined() ? scratch_.mutable_data_ptr<float>() : nullptr;
  const int64_t of_b = block_k_ * (std::min(kTileColumns, n) + kPadding);
  auto* packed_a = b_.is_transposed ? packed_b + of_b : packed_b;
  const bool adds = operands_.added.defined();
  if (adds) begin_sums();
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
