#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "levin/base/check.h"
#include "levin/files/posix_impl.h"
#include "levin/files/staging_name_impl.h"

namespace levin::files::detail {
namespace {

struct ProcessStat {
  char state = '?';
  uint64_t start = 0;  // clock ticks after the machine's start
};

/// From /proc/PID/stat (proc(5)): "PID (NAME) STATE ... START ...", START being field 22.
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

}  // namespace

std::filesystem::path staging_path(const std::filesystem::path& final_path, std::string_view kind) {
  const int64_t pid = ::getpid();
  const uint64_t start = process_stat(pid).value_or(ProcessStat{}).start;
  return final_path.parent_path() / fmt::format("{}{}@{}-{}-{}-{:08x}", kind,
                                                final_path.filename().string(), host_name(), pid,
                                                start, std::random_device{}());
}

std::optional<Leftover> leftover(const std::string& filename) {
  const std::string_view all(filename);
  const std::string_view kind = all.starts_with(kOld) ? kOld : kNew;
  const size_t at = all.rfind('@');
  if (!all.starts_with(kind) || at == std::string_view::npos) return std::nullopt;
  std::string_view maker = all.substr(at + 1);
  uint32_t random = 0;
  uint64_t start = 0;
  int32_t pid = 0;
  if (!take_number(maker, random, 16) || !take_number(maker, start) || !take_number(maker, pid)) {
    return std::nullopt;
  }
  if (pid <= 0 || maker != host_name() || lives(pid, start)) return std::nullopt;
  return Leftover{kind, filename.substr(kind.size(), at - kind.size())};
}

}  // namespace levin::files::detail
