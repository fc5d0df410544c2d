#include "levin/launch/peers.h"

#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "levin/base/check.h"
#include "levin/base/log.h"

namespace levin::launch {
namespace {

/// The arguments as the system handed them over. A program may write over its own arguments to
/// change its name in ps, and /proc then shows the change.
std::vector<std::string>& first_arguments() {
  static auto* words = new std::vector<std::string>;
  return *words;
}

#ifdef __GLIBC__
// glibc hands main's arguments to what runs before it.
__attribute__((constructor)) void note_arguments(int count, char** words, char**) {
  if (count > 0 && words != nullptr) first_arguments().assign(words, words + count);
}
#endif

std::vector<std::string> own_command() {
  if (!first_arguments().empty()) return first_arguments();
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> command;
  for (std::string argument; std::getline(in, argument, '\0');) command.push_back(argument);
  return command;
}

// The link is this program's own file even where that was replaced or deleted meanwhile.
std::string own_program() {
  constexpr const char* kLink = "/proc/self/exe";
  if (::access(kLink, X_OK) == 0) return kLink;
  const auto started = ::getauxval(AT_EXECFN);
  // The system gives the address of a text as a number.
  const auto* name = reinterpret_cast<const char*>(started);  // NOLINT(performance-no-int-to-ptr)
  const std::string path = name == nullptr ? "" : name;
  LEVIN_CHECK(
      !path.empty() && ::access(path.c_str(), X_OK) == 0, "launch.program",
      "this program cannot start itself again as several ranks: there is no {} and no file '{}'; "
      "mount /proc, start the program by its absolute path, or start its ranks with mpirun or srun",
      kLink, path);
  return path;
}

bool has_input() {
  struct stat status = {};
  if (::fstat(STDIN_FILENO, &status) != 0) return false;
  if (S_ISREG(status.st_mode)) return status.st_size > 0;
  int waiting = 0;
  return S_ISFIFO(status.st_mode) && ::ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 && waiting > 0;
}

}  // namespace

int run_peers(const PeerOptions& options) {
  LaunchOptions launch;
  launch.nproc_per_node = options.num_processes;
  launch.max_restarts = options.max_restarts;
  launch.shutdown_timeout_s = options.shutdown_timeout_s;
  launch.failure_timeout_s = options.failure_timeout_s;
  launch.first_rank_plain = true;
  launch.command = own_command();
  if (has_input()) {
    log::warn(
        "starting {} ranks of this program, and none of them receives its stdin; read the input "
        "from a file",
        options.num_processes);
  }
  return detail::supervise(launch, own_program());
}

}  // namespace levin::launch
