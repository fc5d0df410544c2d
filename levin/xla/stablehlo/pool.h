#pragma once
// Pool: the windows of a pooling operator, over the last dimensions of a value.

#include "levin/xla/stablehlo/along.h"
#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {

struct Pool {
  Dims kernel, stride, padding, dilation;

  int64_t rank() const { return static_cast<int64_t>(kernel.size()); }
  /// Returns the number of elements of a window.
  int64_t numel() const;
};

/// Arguments from `first` on: kernel_size, stride, padding, and dilation where there is one.
Pool pool_of(Lowering& at, size_t first, int64_t rank, bool has_dilation);

/// Returns the window that reduces x to the sizes `out`; it pads the end as needed.
Window window_of(const Hlo& x, const Pool& pool, const Dims& out);

/// The parts of adaptive pools: part i of a dimension is from floor(i size / count) to ceil((i + 1)
/// size / count).
Runs parts_of(int64_t size, int64_t count);

}  // namespace levin::xla
