#pragma once
// Memory of CPU tensors, in blocks of malloc that the next tensor of that size fits into.

#include <c10/core/Allocator.h>

#include "levin/base/export.h"

namespace levin::detail {

/// LibTorch asks for addresses that are multiples of 64 by posix_memalign, for which glibc before 2.38
/// takes a larger block and cuts both ends off. Small allocations fill the ends, so that the next
/// tensor of the same size no longer fits where the last one was: gradients of 64 MB, one after the
/// other, were seen to spread over 1.5 GB in thirty steps. From here on new tensors are aligned in
/// blocks of malloc, which gives the same block again, and small ones out of its cache of the thread.
/// Does nothing where the program has set an allocator of its own, or THP_MEM_ALLOC_ENABLE. Tensors
/// may outlive its end.
LEVIN_API void use_host_allocator();

/// LibTorch's allocator again.
LEVIN_API void use_no_host_allocator();

/// Has memory for some of the tensors that are made.
class LEVIN_API TensorMemory {
 public:
  virtual ~TensorMemory() = default;
  /// At a multiple of 64 bytes; empty: it is the allocator's affair.
  virtual c10::DataPtr allocate(size_t num_bytes) = 0;
};

/// While it lives, the host allocator asks `memory` first for what this thread makes. LibTorch's
/// own allocator does not.
class LEVIN_API TensorMemoryScope {
 public:
  explicit TensorMemoryScope(TensorMemory& memory);
  ~TensorMemoryScope();
  TensorMemoryScope(const TensorMemoryScope&) = delete;
  TensorMemoryScope& operator=(const TensorMemoryScope&) = delete;

 private:
  TensorMemory* outer_;
};

}  // namespace levin::detail
