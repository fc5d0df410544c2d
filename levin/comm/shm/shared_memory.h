#pragma once
// SharedMemory: bytes that are the same for all ranks of a machine: this rank reads them all and
// writes those of its own, through a second mapping.
//
//   SharedMemory memory = group.share(at::kFloat, counts);
//   memory.own()[0] = ...;      // all see it in memory.whole(); a barrier says when

#include <cstddef>
#include <cstdint>

#include "levin/base/export.h"
#include "levin/comm/shm/segment.h"

namespace levin::comm::shm {

/// The kernel refuses to write to whole(): SIGSEGV. The pages at the ends of own() may hold
/// neighbours' bytes too: addresses are kept to by who writes, not by the kernel.
class LEVIN_API SharedMemory {
 public:
  /// begin: where this rank's bytes start in the segment. Throws "comm.shm.memory".
  SharedMemory(Segment segment, int64_t begin, int64_t bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;

  const std::byte* whole() const { return segment_.data(); }
  /// Null for no bytes.
  std::byte* own() const { return own_; }

 private:
  Segment segment_;
  std::byte* mapped_ = nullptr;  ///< whole pages
  size_t mapped_bytes_ = 0;
  std::byte* own_ = nullptr;
};

}  // namespace levin::comm::shm
