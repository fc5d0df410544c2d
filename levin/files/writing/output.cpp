#include "levin/files/writing/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <system_error>

#include "levin/base/check.h"
#include "levin/base/reading/regular_file.h"

namespace levin::files {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMostNames = 100'000;

fs::path numbered(const fs::path& path, int64_t number) {
  if (number == 1) return path;
  return path.parent_path() /
         fmt::format("{}.{}{}", path.stem().string(), number, path.extension().string());
}

std::string first_bytes(const fs::path& path, size_t count, std::string& why) {
  std::string bytes(count, '\0');
  const auto opened = posix::open_regular(path, why);
  if (!opened) return "";
  const int64_t read = posix::read_some(opened->file, std::as_writable_bytes(std::span(bytes)));
  bytes.resize(static_cast<size_t>(std::max<int64_t>(read, 0)));
  return bytes;
}

}  // namespace

posix::Descriptor create_beside(fs::path& path) {
  std::error_code ignored;  // an error of the folder shows when the file is made
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), ignored);
  for (int64_t number = 1; number <= kMostNames; ++number) {
    fs::path free = numbered(path, number);
    posix::Descriptor file = posix::open_file(free, O_WRONLY | O_CREAT | O_EXCL);
    if (!file && errno == EEXIST) continue;
    if (file) path = std::move(free);
    return file;
  }
  return {};
}

posix::Descriptor open_own(const fs::path& path, int flags, bool private_to_user) {
  int number = -1;
  do {
    number =
        ::open(path.c_str(), (flags & ~O_TRUNC) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY,
               private_to_user ? 0600 : 0666);
  } while (number < 0 && errno == EINTR);
  posix::Descriptor file(number);
  struct stat status{};
  if (!file || ::fstat(number, &status) != 0) return {};
  if (!S_ISREG(status.st_mode)) {
    errno = EINVAL;
    return {};
  }
  if ((flags & O_TRUNC) != 0 && ::ftruncate(number, 0) != 0) return {};
  return file;
}

posix::Descriptor create_without_name(const fs::path& folder) {
  int number = -1;
  do {
    number = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  } while (number < 0 && errno == EINTR);
  const bool lacks_it = number < 0 && (errno == EOPNOTSUPP || errno == EISDIR);
  return lacks_it ? create_unlinked(folder) : posix::Descriptor(number);
}

posix::Descriptor create_unlinked(const fs::path& folder) {
  for (int64_t number = 1; number <= kMostNames; ++number) {
    const fs::path path =
        folder / fmt::format(".levin-scratch-{}-{}-{}", posix::host_name(), ::getpid(), number);
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0 && (errno == EEXIST || errno == EINTR)) continue;
    if (file >= 0) ::unlink(path.c_str());
    return posix::Descriptor(file);
  }
  return {};
}

void check_own(const fs::path& path, std::string_view beginning) {
  std::error_code unknown;
  const fs::file_status there = fs::symlink_status(path, unknown);
  if (there.type() == fs::file_type::not_found) return;
  LEVIN_CHECK(
      !fs::is_symlink(there), "files.replace",
      "cannot write {}: it is a link; name the file that the link points to, or move the link away",
      path.string());
  std::string why;
  const std::string found = first_bytes(path, beginning.size(), why);
  LEVIN_CHECK(why.empty(), "files.replace", "cannot write {}: {}; give another path", path.string(),
              why);
  LEVIN_CHECK(found.empty() || found == beginning, "files.replace",
              "cannot replace {}: this command has not written that file; name a new file, or move "
              "that one away",
              path.string());
}

void append_text(const fs::path& path, std::string_view text, std::string_view beginning) {
  check_own(path, beginning);
  const posix::Descriptor file = open_own(path, O_WRONLY | O_CREAT | O_APPEND);
  const bool is_written =
      file && posix::write_all(file, std::as_bytes(std::span(text))) == text.size();
  LEVIN_CHECK(is_written, "files.write", "cannot write {}: {}", path.string(),
              posix::reason(errno));
}

}  // namespace levin::files
