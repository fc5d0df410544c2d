#include "levin/base/posix.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <system_error>

#include "levin/base/check.h"

namespace levin::posix {
namespace {

const char* remedy(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space or choose another folder";
    case EFBIG:
      return "; raise the limit on the size of a file (ulimit -f)";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; check its permissions";
    case ENOENT:
    case ENOTDIR:
      return "; check the path";
    case EISDIR:
      return "; name a file in it";
    case EMFILE:
    case ENFILE:
      return "; raise the limit on open files (ulimit -n)";
    case EIO:
      return "; check the disk (see dmesg)";
    default:
      return "";
  }
}

}  // namespace

Descriptor::~Descriptor() { close(); }

bool Descriptor::close() {
  if (number_ < 0) return true;
  // Linux frees the descriptor even when close is interrupted: never call it twice.
  return ::close(std::exchange(number_, -1)) == 0 || errno == EINTR;
}

Descriptor open_file(const std::filesystem::path& path, int flags) {
  int number = -1;
  do {
    number = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (number < 0 && errno == EINTR);
  return Descriptor(number);
}

int64_t read_some(const Descriptor& file, std::span<std::byte> to) {
  size_t filled = 0;
  while (filled < to.size()) {
    const ssize_t count = ::read(file.number(), to.data() + filled, to.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    filled += static_cast<size_t>(count);
  }
  return static_cast<int64_t>(filled);
}

size_t write_all(const Descriptor& file, std::span<const std::byte> bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = ::write(file.number(), bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    written += static_cast<size_t>(count);
  }
  return written;
}

std::string reason(int error) {
  std::string text = std::generic_category().message(error);
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text + remedy(error);
}

void sync_path(const std::filesystem::path& path) {
  const Descriptor file = open_file(path, O_RDONLY);
  // Some network file systems cannot sync a folder and say EINVAL.
  const bool synced = file && (::fsync(file.number()) == 0 || errno == EINVAL);
  LEVIN_CHECK(synced, "files.write", "cannot sync {} to disk: {}", path.string(), reason(errno));
}

std::string host_name() {
  std::array<char, 256> name{};
  const bool known = ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0';
  return known ? name.data() : "localhost";
}

}  // namespace levin::posix
