#include "levin/base/reading/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <span>

namespace levin::posix {
namespace {

constexpr size_t kLongestText = size_t{1} << 26;
constexpr size_t kReadAtOnce = size_t{1} << 16;

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "it is a pipe, wanted a file";
  if (S_ISSOCK(mode)) return "it is a socket, wanted a file";
  return "it is a device, wanted a file";
}

}  // namespace

bool is_open_stream(const std::filesystem::path& path) {
  const std::string& name = path.native();
  return name == "/dev/stdin" || name.starts_with("/dev/fd/") || name.starts_with("/proc/self/fd/");
}

std::optional<RegularFile> open_regular(const std::filesystem::path& path, std::string& why) {
  RegularFile opened{open_file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY)};
  struct stat status{};
  if (!opened.file || ::fstat(opened.file.number(), &status) != 0) {
    // A socket cannot be opened.
    why = errno == ENXIO ? kind_of(S_IFSOCK) : reason(errno);
    return std::nullopt;
  }
  if (!S_ISREG(status.st_mode)) {
    why = S_ISDIR(status.st_mode) ? reason(EISDIR) : kind_of(status.st_mode);
    return std::nullopt;
  }
  opened.size = status.st_size;
  return opened;
}

std::optional<std::string> read_text(const std::filesystem::path& path, std::string& why) {
  Descriptor file;
  if (is_open_stream(path)) {
    file = open_file(path, O_RDONLY | O_NOCTTY);
    if (!file) why = reason(errno);
  } else if (auto opened = open_regular(path, why)) {
    file = std::move(opened->file);
  }
  if (!file) return std::nullopt;
  std::string text;
  std::array<std::byte, kReadAtOnce> bytes;
  while (text.size() <= kLongestText) {
    const int64_t count = read_some(file, bytes);
    if (count < 0) {
      why = reason(errno);
      return std::nullopt;
    }
    text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count));
    if (count < std::ssize(bytes)) return text;
  }
  why = "it has more than 64 MiB, wanted a small text";
  return std::nullopt;
}

}  // namespace levin::posix
