#include "levin/comm/shm/shared_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "levin/base/check.h"

namespace levin::comm::shm {

SharedMemory::SharedMemory(Segment segment, int64_t begin, int64_t bytes)
    : segment_(std::move(segment)) {
  segment_.make_read_only();
  if (bytes > 0) {
    const int64_t page = ::sysconf(_SC_PAGESIZE), before = begin % page;
    mapped_bytes_ = static_cast<size_t>(before + bytes);
    void* mapped = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED,
                          segment_.descriptor(), begin - before);
    LEVIN_CHECK(mapped != MAP_FAILED, "comm.shm.memory",
                "cannot map {} bytes of shared memory a second time: {}", bytes,
                posix::reason(errno));
    mapped_ = static_cast<std::byte*>(mapped);
    own_ = mapped_ + before;
  }
  segment_.close_descriptor();
}

SharedMemory::~SharedMemory() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : segment_(std::move(other.segment_)),
      mapped_(std::exchange(other.mapped_, nullptr)),
      mapped_bytes_(other.mapped_bytes_),
      own_(std::exchange(other.own_, nullptr)) {}

}  // namespace levin::comm::shm
