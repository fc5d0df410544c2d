#pragma once
// Matmul: products of float32 matrices on the CPU by oneDNN's kernels, summed in the order of the
// BLAS library behind ATen. A Replay runs it if matmul_choice found it to be faster.
//
//   if (const auto operands = matmul_operands(op, arguments)) {
//     const Matmul matmul(*operands, /*block_k=*/192, at::empty({Matmul::scratch_numel(...)}));
//     matmul();
//   }

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

#include "levin/base/export.h"

namespace levin::graph {

/// out = a b, or added + a b; or as many products as there are batches.
struct LEVIN_API MatmulOperands {
  at::Tensor out;    ///< [m, n] or [batch, m, n], rows contiguous
  at::Tensor a;      ///< [m, k] or [batch, m, k], rows or columns contiguous
  at::Tensor b;      ///< [k, n] or [batch, k, n], rows or columns contiguous
  at::Tensor added;  ///< undefined, [n], or of out's shape with contiguous rows

  int64_t batches() const { return out.dim() == 3 ? out.size(0) : 1; }
  int64_t m() const { return out.size(-2); }
  int64_t n() const { return out.size(-1); }
  int64_t k() const { return a.size(-1); }
};

/// The operands of aten's mm.out, addmm.out, bmm.out and baddbmm.out, if a Matmul supports them.
/// Only shapes and strides are read.
LEVIN_API std::optional<MatmulOperands> matmul_operands(const c10::OperatorHandle& op,
                                                        const torch::jit::Stack& arguments);

class LEVIN_API Matmul {
 public:
  /// Returns whether this machine, and LibTorch as it was built and set, have the kernels.
  static bool is_available();
  /// Floats of memory that it needs beside its operands, for itself while it runs.
  static int64_t scratch_numel(const MatmulOperands& operands, int64_t block_k);

  /// Sums block_k products after another by fused multiply-adds and adds up these sums.
  Matmul(MatmulOperands operands, int64_t block_k, at::Tensor scratch);
  /// Throws c10::Error where is_available() does not hold.
  void operator()() const;

 private:
  /// The layout of a matrix in memory, or of its transpose.
  struct Layout {
    explicit Layout(const at::Tensor& matrix);
    int64_t stride = 0;  ///< stride of rows, or of columns if it is transposed
    bool is_transposed = false;
  };
  /// A part of a matrix with contiguous rows, as the kernels want it.
  struct Tile {
    const float* data = nullptr;
    int64_t stride = 0;
  };
  struct Extent {
    int64_t begin = 0;
    int64_t size = 0;
  };
  static int64_t packed_numel(const Layout& layout, int64_t rows, int64_t columns);
  static Tile tile(const float* matrix, const Layout& layout, Extent rows, Extent columns,
                   float* packed);
  void begin_sums(const float* added, float* out) const;
  void multiply(const float* a, const float* b, float* out) const;

  MatmulOperands operands_;
  Layout a_;
  Layout b_;
  int64_t block_k_;
  at::Tensor scratch_;
};

}  // namespace levin::graph
