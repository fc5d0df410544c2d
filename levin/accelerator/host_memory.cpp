#include "levin/accelerator/host_memory.h"

#include <cstdlib>
#include <initializer_list>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace levin::detail {

void keep_freed_memory() {
#ifdef __GLIBC__
  for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}) {
    if (std::getenv(name) != nullptr) return;
  }
  constexpr int kLargestMmapThreshold = 32 << 20;  // glibc takes no more
  constexpr int kKeptBytes = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kLargestMmapThreshold);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
#endif
}

void return_freed_memory() {
#ifdef __GLIBC__
  ::malloc_trim(/*pad=*/0);
#endif
}

}  // namespace levin::detail
