#pragma once
// Keeps the memory that a step frees in the process, so that the next step need not fetch it anew.

#include "levin/base/export.h"

namespace levin::detail {

/// glibc gives large blocks and the end of the heap back to the system as soon as they are free,
/// and a training step, which frees what the next one allocates, then waits for the same pages
/// again: in a small convolutional network two fifths of the page faults and up to a tenth of the
/// time, in chains of large elementwise operations most of it. The heap may then keep twice what is
/// in use; tensors come from base/memory/host_allocator.h. Does nothing with another allocator, or where MALLOC_TRIM_THRESHOLD_,
/// MALLOC_MMAP_THRESHOLD_ or GLIBC_TUNABLES say how it should be.
LEVIN_API void keep_freed_memory();

/// The opposite, until keep_freed_memory(): for steps whose memory will not be used again.
LEVIN_API void keep_no_freed_memory();

/// Restores glibc's defaults if one of these two functions has changed them, and frees the kept
/// memory. glibc neither tells its old thresholds nor lets them grow by themselves again: they
/// become 128 KB.
LEVIN_API void restore_freed_memory();

/// Gives all that is free back to the system, once, because what was kept will not be allocated as
/// before. Does nothing with another allocator than glibc's.
LEVIN_API void return_freed_memory();

}  // namespace levin::detail
