#pragma once
// System calls on files, restarted after signals, and the words for their errors.
// Not for users.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "levin/base/export.h"

namespace levin::posix {

/// Owns a file descriptor; -1 is none.
class LEVIN_API Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  /// False with errno set when the system reports a late error.
  bool close();

 private:
  int number_ = -1;
};

/// open(2) with O_CLOEXEC; none with errno set when it fails.
LEVIN_API Descriptor open_file(const std::filesystem::path& path, int flags);

/// read(2) until `to` is full or the file ends; -1 with errno set when it fails.
LEVIN_API int64_t read_some(const Descriptor& file, std::span<std::byte> to);

/// Bytes written: fewer than given only on an error, with errno set.
size_t write_all(const Descriptor& file, std::span<const std::byte> bytes);

/// "no space left on device; free some space or choose another folder".
LEVIN_API std::string reason(int error);

/// fsync of what the path names, a file or a folder. Throws Error "files.write".
void sync_path(const std::filesystem::path& path);

/// The machine's name; "localhost" where it has none.
std::string host_name();

}  // namespace levin::posix
