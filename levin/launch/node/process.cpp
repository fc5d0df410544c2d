#include "levin/launch/node/process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "levin/base/check.h"

namespace levin::launch {
namespace {

using posix::Descriptor;

// Everything that the child needs, made before the fork: after it a child of a process with threads
// may not allocate.
struct Image {
  std::vector<std::string> lines;  // "NAME=value"
  std::vector<char*> arguments;
  std::vector<char*> environment;
  std::string program;
  cpu_set_t cpus;
  bool bound = false;
};

std::vector<std::string> merged_environment(const ProcessSpec& spec) {
  std::map<std::string, std::string> own(spec.variables.begin(), spec.variables.end());
  std::vector<std::string> lines;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    if (!own.contains(std::string(line.substr(0, line.find('='))))) lines.emplace_back(line);
  }
  for (const auto& [name, value] : own) lines.push_back(name + "=" + value);
  return lines;
}

Image make_image(const ProcessSpec& spec) {
  Image image;
  image.lines = merged_environment(spec);
  for (std::string& line : image.lines) image.environment.push_back(line.data());
  image.environment.push_back(nullptr);
  for (const std::string& argument : spec.command) {
    image.arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  image.arguments.push_back(nullptr);
  image.program = spec.program.empty() ? spec.command.front() : spec.program;
  CPU_ZERO(&image.cpus);
  for (const int cpu : spec.cpus) CPU_SET(cpu, &image.cpus);
  image.bound = !spec.cpus.empty();
  return image;
}

void become_default(int number) { ::signal(number, SIG_DFL); }

// In the child. Returns only when the program cannot be run, with errno set.
void run_image(const Image& image, const ProcessSpec& spec, const Guard& guard, pid_t launcher) {
  ::setpgid(0, 0);
  guard.watch_own_group();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(128 + SIGKILL);  // it died before the line above
  const int wanted[] = {spec.input, spec.output, spec.error};
  for (int number = 0; number < 3; ++number) {
    if (wanted[number] >= 0 && ::dup2(wanted[number], number) < 0) return;
  }
  for (const int number : {SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGUSR1}) become_default(number);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (image.bound && ::sched_setaffinity(0, sizeof image.cpus, &image.cpus) != 0) return;
  ::execvpe(image.program.c_str(), image.arguments.data(), image.environment.data());
}

// 0 when the program runs, else the errno that kept it from running.
int read_report(const Descriptor& report) {
  int error = 0;
  std::byte bytes[sizeof error];
  if (posix::read_some(report, bytes) == sizeof error) {
    std::memcpy(&error, bytes, sizeof error);
  }
  return error;
}

}  // namespace

Process Process::start(const ProcessSpec& spec, Guard& guard) {
  const Image image = make_image(spec);
  int ends[2];
  LEVIN_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "launch.program", "cannot make a pipe: {}",
              posix::reason(errno));
  const Descriptor report(ends[0]);
  Descriptor child_end(ends[1]);
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    run_image(image, spec, guard, launcher);
    const int error = errno;
    [[maybe_unused]] const ssize_t told = ::write(ends[1], &error, sizeof error);
    ::_exit(127);
  }
  LEVIN_CHECK(pid > 0, "launch.program", "cannot start another process: {}", posix::reason(errno));
  child_end.close();
  const int error = read_report(report);
  Descriptor ended(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  Process process(pid, std::move(ended), guard);
  if (error != 0) process.reap();
  LEVIN_CHECK(error == 0, "launch.program", "cannot run '{}': {}", image.program,
              posix::reason(error));
  if (process.descriptor() < 0) {
    process.signal(SIGKILL);
    process.reap();
    LEVIN_FAIL("launch.program", "this kernel has no pidfd_open; use Linux 5.3 or newer");
  }
  return process;
}

void Process::signal(int number) const { ::kill(-pid_, number); }

std::optional<int> Process::reap() {
  siginfo_t info = {};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
  // While the dead leader is not waited for, nobody else can be given the number of its group.
  signal(SIGKILL);
  int status = 0;
  guard_->forget(pid_);
  pid_t reaped = 0;
  do {
    reaped = ::waitpid(pid_, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  return reaped == pid_ ? std::optional(status) : std::nullopt;
}

}  // namespace levin::launch
