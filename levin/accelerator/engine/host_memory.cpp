#include "levin/accelerator/engine/host_memory.h"

#include <atomic>
#include <cstdlib>
#include <initializer_list>

#include "levin/base/memory/host_allocator.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace levin::detail {

namespace {

/// The user has said how it should be.
bool is_set() {
  for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

std::atomic<bool> is_changed = false;

}  // namespace

void keep_freed_memory() {
#ifdef __GLIBC__
  if (is_set()) return;
  constexpr int kLargestMmapThreshold = 32 << 20;  // glibc takes no more
  constexpr int kKeptBytes = 1 << 30;
  is_changed = true;
  mallopt(M_MMAP_THRESHOLD, kLargestMmapThreshold);
  mallopt(M_MMAP_MAX, 0);  // else a gradient of 64 MB costs 16,000 page faults
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  use_host_allocator();
#endif
}

void keep_no_freed_memory() {
#ifdef __GLIBC__
  if (is_set()) return;
  is_changed = true;
  constexpr int kLarge = 128 << 10;  // glibc's initial value; once set, it does not grow
  constexpr int kMappings = 65536;   // likewise
  mallopt(M_MMAP_THRESHOLD, kLarge);
  mallopt(M_MMAP_MAX, kMappings);
  mallopt(M_TRIM_THRESHOLD, kLarge);
#endif
}

void restore_freed_memory() {
#ifdef __GLIBC__
  if (!is_changed.exchange(false)) return;
  keep_no_freed_memory();
  use_no_host_allocator();
  return_freed_memory();
  is_changed = false;
#endif
}

void return_freed_memory() {
#ifdef __GLIBC__
  ::malloc_trim(/*pad=*/0);
#endif
}

}  // namespace levin::detail
