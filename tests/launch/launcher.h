#pragma once
// `levin run` as a real process, and what its ranks are: small shell scripts in a folder of the
// test.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "levin/comm/environment/port.h"
#include "tests/support/patience.h"
#include "tests/support/places.h"
#include "tests/support/scratch.h"

namespace levin::test {

using Words = std::vector<std::string>;
using Settings = std::map<std::string, std::string>;

/// The dead that nobody has waited for are not alive: an init of a container may leave them.
inline bool is_alive(pid_t pid) {
  std::string word, state;
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  while (status >> word && word != "State:") {
  }
  return status >> state && state != "Z" && state != "X";
}

inline std::string script(const Scratch& scratch, const std::string& name,
                          const std::string& body) {
  const auto path = put(scratch / name, "#!/bin/sh\n" + body + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path.string();
}

inline std::string free_port() { return std::to_string(comm::listen_on(0, "").port()); }

/// This process becomes `levin run` with these words.
[[noreturn]] inline void become_levin_run(const Words& words) {
  Words all = {levin::test::levin_command(), "run"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(levin::test::levin_command().c_str(), arguments.data());
  ::_exit(99);
}

/// One `levin run`; its output goes to files of the scratch folder.
class Launcher {
 public:
  Launcher(const Scratch& scratch, const Words& words, const Settings& settings = {}) {
    static int count = 0;
    const std::string name = "launcher" + std::to_string(count++);
    out_ = scratch / (name + ".out");
    err_ = scratch / (name + ".err");
    pid_ = ::fork();
    if (pid_ == 0) become(scratch, words, settings);
  }
  ~Launcher() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  std::string out() const { return get(out_); }
  std::string err() const { return get(err_); }

  /// Whether it is so far that a signal ends it in order, by Linux's account of what it catches.
  bool catches(int number) const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigCgt:")) continue;
      return (std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1U) != 0;
    }
    return false;
  }

  /// The exit code, minus the signal that ended it, or -1000 when it goes on for too long, as soon()
  /// has it.
  int wait(double idle_s = 60) {
    int status = 0;
    if (!soon([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, idle_s)) return -1000;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  [[noreturn]] void become(const Scratch& scratch, const Words& words, const Settings& settings) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const auto& [file, number] : {std::pair(out_, 1), std::pair(err_, 2)}) {
      ::dup2(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), number);
    }
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    for (const auto& [variable, value] : settings) ::setenv(variable.c_str(), value.c_str(), 1);
    if (::chdir(scratch.str().c_str()) != 0) ::_exit(99);
    become_levin_run(words);
  }

  pid_t pid_;
  std::filesystem::path out_, err_;
};

/// Numbers that scripts wrote into a file, one a line.
inline std::vector<pid_t> pids_in(const std::filesystem::path& file) {
  std::vector<pid_t> pids;
  std::ifstream in(file);
  for (pid_t pid = 0; in >> pid;) pids.push_back(pid);
  return pids;
}

inline bool any_alive(const std::vector<pid_t>& pids) {
  return std::any_of(pids.begin(), pids.end(), is_alive);
}

}  // namespace levin::test
