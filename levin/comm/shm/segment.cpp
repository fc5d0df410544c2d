#include "levin/comm/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <limits>
#include <string>

#include "levin/base/check.h"

namespace levin::comm::shm {
namespace {

// Memory that another process cuts short ends by SIGBUS who reads it.
constexpr int kSizeIsFinal = F_SEAL_SHRINK | F_SEAL_GROW;

/// Bytes of memory that are available without swapping (MemAvailable in /proc/meminfo).
size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    size_t kilobytes = 0;
    if (name == "MemAvailable:" && file >> kilobytes) return kilobytes << 10;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::numeric_limits<size_t>::max();
}

// Reserved, or the first write to a page that is not there would end the process by SIGBUS.
void reserve_memory(const Descriptor& descriptor, size_t begin, size_t bytes) {
  // Asked for more than there is, Linux would end processes to make room.
  LEVIN_CHECK(
      bytes < available_memory(), "comm.shm.memory",
      "shared memory needs {} bytes but {} are free; free memory or set the backend to gloo", bytes,
      available_memory());
  const int failed =
      ::posix_fallocate(descriptor.number(), static_cast<off_t>(begin), static_cast<off_t>(bytes));
  LEVIN_CHECK(
      failed == 0, "comm.shm.memory",
      "cannot allocate {} bytes of shared memory: {}; free memory or set the backend to gloo",
      bytes, posix::reason(failed));
}

}  // namespace

Segment Segment::create(size_t bytes, size_t reserved) {
  Descriptor descriptor(::memfd_create("levin", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  LEVIN_CHECK(descriptor, "comm.shm.memory",
              "cannot create shared memory: {}; set the backend to gloo", posix::reason(errno));
  reserve_memory(descriptor, 0, reserved);
  LEVIN_CHECK(
      ::ftruncate(descriptor.number(), static_cast<off_t>(bytes)) == 0, "comm.shm.memory",
      "cannot allocate {} bytes of shared memory: {}; free memory or set the backend to gloo",
      bytes, posix::reason(errno));
  LEVIN_CHECK(::fcntl(descriptor.number(), F_ADD_SEALS, kSizeIsFinal | F_SEAL_SEAL) == 0,
              "comm.shm.memory", "cannot seal shared memory: {}; set the backend to gloo",
              posix::reason(errno));
  return map(std::move(descriptor), bytes);
}

void Segment::reserve(size_t begin, size_t bytes) const {
  reserve_memory(descriptor_, begin, bytes);
}

Segment Segment::map(Descriptor descriptor, size_t bytes) {
  struct stat status = {};
  const int seals = ::fcntl(descriptor.number(), F_GET_SEALS);
  const bool fits = ::fstat(descriptor.number(), &status) == 0 && bytes > 0 &&
                    static_cast<size_t>(status.st_size) == bytes && seals >= 0 &&
                    (seals & kSizeIsFinal) == kSizeIsFinal;
  LEVIN_CHECK(
      fits, "comm.shm.memory",
      "got a shared memory file of {} bytes with file seals {:#x}, wanted {} bytes with the "
      "seals {:#x}, which fix the file's size; run the same version of levin on all ranks",
      status.st_size, seals, bytes, kSizeIsFinal);
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.number(), 0);
  LEVIN_CHECK(data != MAP_FAILED, "comm.shm.memory", "cannot map {} bytes of shared memory: {}",
              bytes, posix::reason(errno));
  Segment segment;
  segment.descriptor_ = std::move(descriptor);
  segment.data_ = static_cast<std::byte*>(data);
  segment.size_ = bytes;
  return segment;
}

void Segment::make_read_only() const {
  LEVIN_CHECK(::mprotect(data_, size_, PROT_READ) == 0, "comm.shm.memory",
              "cannot make {} bytes of shared memory read-only: {}", size_, posix::reason(errno));
}

Segment::~Segment() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace levin::comm::shm
