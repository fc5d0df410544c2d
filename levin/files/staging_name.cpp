#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "levin/base/check.h"
#include "levin/base/posix.h"
#include "levin/files/staging_name_impl.h"

namespace levin::files::detail {
namespace {

struct ProcessStat {
  char state = '?';
  uint64_t start = 0;  // clock ticks after the machine's start
};

/// Reads /proc/PID/stat (proc(5)): "PID (NAME) STATE ... START ...", START being field 22.
std::optional<ProcessStat> process_stat(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string line(std::istreambuf_iterator<char>(file), {});
  const size_t end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(end_of_name + 1));
  ProcessStat stat;
  std::string skipped;
  fields >> stat.state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  if (!fields) return std::nullopt;
  return stat;
}

/// The number of this process's pid namespace; 0 where the system does not say.
uint64_t pid_namespace() {
  struct stat status{};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

/// A pid alone does not tell: in a container that was restarted the new process has the old one's.
bool lives(int64_t pid, uint64_t start) {
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return false;
  const auto stat = process_stat(pid);
  if (!stat) return true;
  return stat->state != 'Z' && stat->state != 'X' && stat->start == start;
}

/// Takes "-NUMBER" off the end of text.
template <class T>
bool take_number(std::string_view& text, T& number, int base = 10) {
  const size_t dash = text.rfind('-');
  if (dash == std::string_view::npos) return false;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + dash + 1, end, number, base);
  text.remove_suffix(text.size() - dash);
  return error == std::errc() && stop == end;
}

/// Locks at once, or waits for the holder, as `how` says; false with errno set.
bool lock(const posix::Descriptor& file, int how) {
  int result = -1;
  do {
    result = ::flock(file.number(), how);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

/// Returns whether the path still names the open file: somebody may have taken it for a leftover
/// meanwhile.
bool is_at(const posix::Descriptor& file, const std::filesystem::path& path) {
  struct stat opened{}, named{};
  return ::fstat(file.number(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

template <class Make>
Staged stage(const std::filesystem::path& final_path, std::string_view what, const Make& make) {
  for (;;) {
    Staged staged{staging_path(final_path, kNew), {}};
    staged.lock = make(staged.path);
    const int error = errno;
    if (!staged.lock && (error == EEXIST || error == EINTR)) continue;
    LEVIN_CHECK(static_cast<bool>(staged.lock), "files.write", "cannot make the {} {}: {}", what,
                staged.path.string(), posix::reason(error));
    // A process that removes leftovers holds the lock meanwhile, and may have come in between.
    const bool is_locked = lock(staged.lock, LOCK_EX);
    if (!is_at(staged.lock, staged.path)) continue;
    if (!is_locked) staged.lock.close();
    return staged;
  }
}

/// Returns whether it is certainly dead: its lock could be taken, or its process of this pid
/// namespace is gone.
bool is_dead(const posix::Descriptor& opened, bool is_same_space, int32_t pid, uint64_t start) {
  const bool is_locked = opened && lock(opened, LOCK_EX | LOCK_NB);
  if (opened && !is_locked && errno == EWOULDBLOCK) return false;
  if (is_same_space && lives(pid, start)) return false;
  return is_locked || is_same_space;
}

}  // namespace

std::filesystem::path staging_path(const std::filesystem::path& final_path, std::string_view kind) {
  const int64_t pid = ::getpid();
  const uint64_t start = process_stat(pid).value_or(ProcessStat{}).start;
  return final_path.parent_path() /
         fmt::format("{}{}@{}-{}-{}-{}-{:08x}", kind, final_path.filename().string(),
                     posix::host_name(), pid_namespace(), pid, start, std::random_device{}());
}

Staged stage_folder(const std::filesystem::path& final_path) {
  return stage(final_path, "folder", [](const std::filesystem::path& path) {
    if (::mkdir(path.c_str(), 0777) != 0) return posix::Descriptor();
    posix::Descriptor folder = posix::open_file(path, O_RDONLY | O_DIRECTORY);
    const int error = errno;
    if (!folder && error != ENOENT) ::rmdir(path.c_str());
    errno = error == ENOENT ? EEXIST : error;  // taken for a leftover: another name
    return folder;
  });
}

Staged stage_file(const std::filesystem::path& final_path) {
  return stage(final_path, "file", [](const std::filesystem::path& path) {
    return posix::open_file(path, O_RDWR | O_CREAT | O_EXCL);
  });
}

posix::Descriptor lock_now(const std::filesystem::path& path) {
  posix::Descriptor file = posix::open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (file && !lock(file, LOCK_EX | LOCK_NB)) file.close();
  return file;
}

std::optional<Leftover> leftover(const std::filesystem::path& path) {
  const std::string filename = path.filename().string();
  const std::string_view all(filename);
  const std::string_view kind = all.starts_with(kOld) ? kOld : kNew;
  const size_t at = all.rfind('@');
  if (!all.starts_with(kind) || at == std::string_view::npos) return std::nullopt;
  std::string_view maker = all.substr(at + 1);
  uint32_t random = 0;
  uint64_t start = 0, space = 0;
  int32_t pid = 0;
  if (!take_number(maker, random, 16) || !take_number(maker, start) || !take_number(maker, pid) ||
      !take_number(maker, space)) {
    return std::nullopt;
  }
  if (pid <= 0 || maker != posix::host_name()) return std::nullopt;
  posix::Descriptor opened = posix::open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!is_dead(opened, space == pid_namespace(), pid, start)) return std::nullopt;
  return Leftover{kind, filename.substr(kind.size(), at - kind.size()), std::move(opened)};
}

}  // namespace levin::files::detail
