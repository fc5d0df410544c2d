#pragma once
// Segment: memory that several processes of one machine map, without a name in any file system.
// Carries the bytes of shm collectives.
//
//   Segment mine = Segment::create(1 << 20);
//   Segment theirs = Segment::map(file_descriptor_received, 1 << 20);

#include <cstddef>
#include <utility>

#include "levin/base/export.h"
#include "levin/base/posix.h"

namespace levin::comm::shm {

using posix::Descriptor;

/// A memfd: no size limit of /dev/shm, and gone with the last process that maps it, also after
/// kill -9. Zeros at first.
class LEVIN_API Segment {
 public:
  Segment() = default;
  /// Throws "comm.shm.memory" when the system gives no memory.
  static Segment create(size_t bytes) { return create(bytes, bytes); }
  /// Makes a segment whose first `reserved` bytes are allocated at once; reserve() allocates the
  /// others.
  static Segment create(size_t bytes, size_t reserved);
  /// Maps the memory of a descriptor that create() made in some process; nobody can change its size
  /// any more. Throws "comm.shm.memory", also if it has another size, or is not sealed.
  static Segment map(Descriptor descriptor, size_t bytes);
  ~Segment();
  Segment(Segment&& other) noexcept { *this = std::move(other); }
  Segment& operator=(Segment&& other) noexcept;

  /// Makes the memory read-only: a later write to data() ends the process by SIGSEGV.
  void make_read_only() const;
  /// Closes the descriptor, so that no other process can get it; the mapping stays.
  void close_descriptor() { descriptor_ = Descriptor(); }
  /// Throws as create() does.
  void reserve(size_t begin, size_t bytes) const;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  int descriptor() const { return descriptor_.number(); }

 private:
  Descriptor descriptor_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace levin::comm::shm
