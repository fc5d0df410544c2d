#include "tests/hosts/network.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/hosts/program.h"

namespace levin::test {
namespace {

constexpr int kKinds = CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS;

/// Whoever is not root is root in a namespace of users.
bool become_root() {
  if (::geteuid() == 0) return true;
  const std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
  std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  return ::geteuid() == 0;
}

bool join(pid_t holder, const std::string& kind, int flag) {
  const std::string path = "/proc/" + std::to_string(holder) + "/ns/" + kind;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool joined = file >= 0 && ::setns(file, flag) == 0;
  ::close(file);
  return joined;
}

bool join_users(pid_t holder) {
  return ::geteuid() == 0 || (join(holder, "user", CLONE_NEWUSER) && ::geteuid() == 0);
}

bool join_all(pid_t holder) {
  return join_users(holder) && join(holder, "net", CLONE_NEWNET) &&
         join(holder, "uts", CLONE_NEWUTS) && join(holder, "mnt", CLONE_NEWNS);
}

bool shell(const std::string& commands) {
  const std::string path = "PATH=$PATH:/sbin:/usr/sbin; ";
  return std::system((path + commands).c_str()) == 0;  // NOLINT: no threads here
}

/// A process that has made namespaces and keeps them; -1 when it could not.
pid_t hold(const std::function<bool()>& make) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool made = make();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!made || ::getppid() != parent || ::write(ends[1], "1", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  char byte = 0;
  const bool made = pid > 0 && ::read(ends[0], &byte, 1) == 1;
  ::close(ends[0]);
  if (made) return pid;
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  return -1;
}

std::string hosts_file(int own, int num_hosts) {
  std::string text = "127.0.0.1 localhost\n127.0.1.1 host" + std::to_string(own) + "\n";
  for (int host = 0; host < num_hosts; ++host) {
    if (host != own) text += Network::address(host) + " host" + std::to_string(host) + "\n";
  }
  return text;
}

}  // namespace

std::string Network::obstacle() {
  if (path_of_command("ip").empty()) return "no ip command; install iproute2";
  const Scratch scratch;
  return Network(scratch, 1).made() ? "" : "the kernel lets nobody here make a network of its own";
}

Network::Network(const Scratch& scratch, int num_hosts) : made_(make(scratch, num_hosts)) {}

Network::~Network() {
  for (const pid_t pid : holders_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

bool Network::make(const Scratch& scratch, int num_hosts) {
  const pid_t bridge = hold([] {
    return become_root() && ::unshare(kKinds) == 0 &&
           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           shell("ip link add bridge0 type bridge && ip link set bridge0 up");
  });
  if (bridge < 0) return false;
  holders_.push_back(bridge);
  for (int host = 0; host < num_hosts; ++host) {
    const std::string name = "host" + std::to_string(host);
    const auto names = put(scratch / ("hosts." + name), hosts_file(host, num_hosts));
    const pid_t pid = hold([&] {
      return join_users(bridge) && ::unshare(kKinds) == 0 &&
             ::sethostname(name.c_str(), name.size()) == 0 &&
             ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
             ::mount(names.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0 &&
             shell("ip link set lo up");
    });
    if (pid < 0) return false;
    holders_.push_back(pid);
    const std::string cable = "cable" + std::to_string(host);
    const bool plugged =
        run_in(bridge, "ip link add " + cable + " type veth peer name eth0 netns " +
                           std::to_string(pid) + " && ip link set " + cable +
                           " master bridge0 up") &&
        run_in(pid, "ip addr add " + address(host) + "/24 dev eth0 && ip link set eth0 up");
    if (!plugged) return false;
  }
  return true;
}

bool Network::enter(int host) const { return join_all(holders_[static_cast<size_t>(host) + 1]); }

bool Network::run_in(pid_t holder, const std::string& commands) const {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(join_all(holder) && shell(commands) ? 0 : 1);
  int status = 1;
  ::waitpid(pid, &status, 0);
  return status == 0;
}

int64_t Network::sent_bytes(int host) const {
  // A line has an interface's name, eight counts of what it has received, then the bytes sent.
  std::ifstream file("/proc/" + std::to_string(holders_[static_cast<size_t>(host) + 1]) +
                     "/net/dev");
  int64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).ends_with("lo")) continue;
    std::istringstream counts(line.substr(colon + 1));
    int64_t count = 0;
    for (int i = 0; i < 9; ++i) counts >> count;
    sum += count;
  }
  return sum;
}

bool Network::pull_cable(int host) const {
  return run_in(holders_[0], "ip link set cable" + std::to_string(host) + " down");
}

bool Network::delay(int host, int milliseconds) const {
  return run_in(
      holders_[static_cast<size_t>(host) + 1],
      "tc qdisc add dev eth0 root netem delay " + std::to_string(milliseconds) + "ms 2>/dev/null");
}

}  // namespace levin::test
