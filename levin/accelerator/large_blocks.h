#pragma once
// Memory of large CPU tensors, in blocks that the next tensor of that size fits into.

#include "levin/base/export.h"

namespace levin::detail {

/// LibTorch asks for addresses of 64 bytes by posix_memalign, for which glibc before 2.38 takes a
/// larger block and cuts both ends off. Small allocations fill the ends, so that the next tensor of
/// the same size no longer fits where the last one was: gradients of 64 MB, one after the other,
/// were seen to spread over 1.5 GB in thirty steps. From here on tensors of 1 MB or more come from
/// malloc with room to align them, which gives the same block again. Smaller ones are LibTorch's, as
/// are all where the program has set an allocator of its own. Results do not depend on it. Tensors
/// may outlive its end.
LEVIN_API void use_large_blocks();

/// LibTorch's allocator again.
LEVIN_API void use_no_large_blocks();

}  // namespace levin::detail
