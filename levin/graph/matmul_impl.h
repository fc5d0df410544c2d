#pragma once
// Matmul: a product of float32 matrices on the CPU by oneDNN's kernels, summed in the order of the
// BLAS library behind ATen. What a Replay runs where matmul_choice found it to be the faster one.
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

/// out = a b, or added + a b. Each is there once.
struct LEVIN_API MatmulOperands {
  at::Tensor out;    ///< [m, n], rows contiguous
  at::Tensor a;      ///< [m, k], rows or columns contiguous
  at::Tensor b;      ///< [k, n], rows or columns contiguous
  at::Tensor added;  ///< undefined, [n], or [m, n] with contiguous rows

  int64_t m() const { return out.size(0); }
  int64_t n() const { return out.size(1); }
  int64_t k() const { return a.size(1); }
};

/// Of aten::mm.out and aten::addmm.out, if a Matmul can do them. Shapes and strides are read alone.
LEVIN_API std::optional<MatmulOperands> matmul_operands(const c10::OperatorHandle& op,
                                                        const torch::jit::Stack& arguments);

class LEVIN_API Matmul {
 public:
  /// Whether this machine, and LibTorch as it was built and set, have the kernels.
  static bool is_available();
  /// Floats of memory that it needs beside its operands, for itself while it runs.
  static int64_t scratch_numel(const MatmulOperands& operands, int64_t block_k);

  /// Sums block_k products after another by fused multiply-adds and adds up these sums.
  Matmul(MatmulOperands operands, int64_t block_k, at::Tensor scratch);
  /// Throws c10::Error where is_available() does not hold.
  void operator()() const;

 private:
  /// A matrix in memory, or its transpose.
  struct Layout {
    explicit Layout(const at::Tensor& matrix);
    int64_t stride = 0;  ///< of rows, or of columns where it is transposed
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
  static Tile tile(const float* matrix, const Layout& layout, Extent rows, Extent columns,
                   float* packed);
  void begin_sums() const;

  MatmulOperands operands_;
  Layout a_;
  Layout b_;
  int64_t block_k_;
  at::Tensor scratch_;
};

}  // namespace levin::graph
