#include "levin/files/memory_map.h"

#include <sys/mman.h>

#include <cerrno>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/posix.h"
#include "levin/base/reading/regular_file.h"

namespace levin::files {
namespace {

/// The maps of this process.
struct Maps {
  std::mutex mutex;
  std::map<const std::byte*, size_t> sizes;  ///< size of each map, by its begin

  static Maps& instance() {
    static Maps& maps = *new Maps;  // maps may end after static objects have gone
    return maps;
  }
};

}  // namespace

MemoryMap::MemoryMap(const std::filesystem::path& path) {
  std::string why;
  const auto opened = posix::open_regular(path, why);
  LEVIN_CHECK(opened, "files.read", "cannot read {}: {}", path.string(), why);
  if (opened->size == 0) return;
  const auto size = static_cast<size_t>(opened->size);
  // Writable for tensors made over it: a page that is written to becomes this process's own.
  void* address =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, opened->file.number(), 0);
  LEVIN_CHECK(address != MAP_FAILED, "files.read", "cannot map {} ({} bytes): {}", path.string(),
              size, posix::reason(errno));
  bytes_ = {static_cast<const std::byte*>(address), size};
  const std::lock_guard lock(Maps::instance().mutex);
  Maps::instance().sizes[bytes_.data()] = size;
}

MemoryMap::~MemoryMap() {
  if (bytes_.empty()) return;
  const std::lock_guard lock(Maps::instance().mutex);
  Maps::instance().sizes.erase(bytes_.data());
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

bool is_mapped(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  const std::lock_guard lock(Maps::instance().mutex);
  const auto& sizes = Maps::instance().sizes;
  const auto next = sizes.upper_bound(byte);
  return next != sizes.begin() && byte < std::prev(next)->first + std::prev(next)->second;
}

MemoryMap::MemoryMap(MemoryMap&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MemoryMap& MemoryMap::operator=(MemoryMap&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace levin::files
