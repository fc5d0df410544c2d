#include "tests/hosts/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>

namespace levin::test {
namespace {

constexpr const char* kMark = "LEVIN_HOSTS_TEST";

// What the test itself may have been started under is not the program's.
constexpr std::array kForeign = {
    "RANK",        "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "KUBERNETES_SERVICE_HOST"};

}  // namespace

Program::Program(const Scratch& scratch, const Words& words, const Settings& settings,
                 const std::function<bool()>& enter) {
  static int count = 0;
  const std::string name = "program" + std::to_string(count++);
  mark_ = std::to_string(::getpid()) + "." + name;
  out_ = scratch / (name + ".out");
  err_ = scratch / (name + ".err");
  pid_ = ::fork();
  if (pid_ == 0) become(scratch, words, settings, enter);
}

// A launcher passes SIGTERM on to what is not its child; the rest dies by SIGKILL.
Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    if (wait(1) == -1000) ::kill(pid_, SIGKILL);
  }
  soon([&] {
    const auto left = alive();
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    return left.empty();
  });
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

int Program::wait(double idle_s) {
  int status = 0;
  if (!soon([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, idle_s)) return -1000;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::vector<pid_t> Program::alive() const {
  const std::string wanted = std::string(kMark) + "=" + mark_;
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto pid = static_cast<pid_t>(std::strtol(entry.path().filename().c_str(), nullptr, 10));
    if (pid <= 0) continue;
    std::istringstream variables(get(entry.path() / "environ"));  // a zombie has none
    for (std::string variable; std::getline(variables, variable, '\0');) {
      if (variable == wanted) pids.push_back(pid);
    }
  }
  return pids;
}

void Program::become(const Scratch& scratch, const Words& words, const Settings& settings,
                     const std::function<bool()>& enter) const {
  for (const auto& [file, number] : {std::pair(out_, 1), std::pair(err_, 2)}) {
    ::dup2(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), number);
  }
  ::dup2(::open("/dev/null", O_RDONLY), 0);
  if (!enter() || ::chdir(scratch.str().c_str()) != 0) ::_exit(99);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const char* variable : kForeign) ::unsetenv(variable);
  ::setenv(kMark, mark_.c_str(), 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  for (const auto& [variable, value] : settings) ::setenv(variable.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

::testing::AssertionResult says_once(const std::string& text, const std::string& promised,
                                     bool at_end) {
  size_t times = 0;
  std::string last;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); last = line) {
    if (line.find(promised) != std::string::npos) ++times;
  }
  const bool ends_so = last.find(promised) != std::string::npos;
  if (times == 1 && (ends_so || !at_end)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "wanted one line with '" << promised << "'";
}

std::string path_of_command(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const auto file = std::filesystem::path(folder) / name;
    if (::access(file.c_str(), X_OK) == 0) return file.string();
  }
  for (const char* folder : {"/sbin/", "/usr/sbin/"}) {
    if (::access((folder + name).c_str(), X_OK) == 0) return folder + name;
  }
  return "";
}

}  // namespace levin::test
