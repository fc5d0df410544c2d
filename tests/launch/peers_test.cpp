// run_peers: this test program starts itself again, as a trainer's program does.
#include "levin/launch/peers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "levin/comm/environment/environment.h"
#include "tests/support/child_process.h"
#include "tests/support/scratch.h"
#include "tests/support/small_disk.h"

namespace levin::launch {
namespace {

using ::testing::HasSubstr;

/// In a process of its own, which runs this one test again: bare it supervises, as a rank it
/// leaves a file.
int run_this_test_as(const std::string& name, const test::Scratch& scratch,
                     const std::string& how = "", const std::string& input = "/dev/null") {
  return test::run_child([&] {
    ::setenv("LEVIN_PEERS_TEST", scratch.str().c_str(), 1);
    ::setenv("LEVIN_PEERS_HOW", how.c_str(), 1);
    const auto log = std::filesystem::path(scratch.str() + ".log");
    ::dup2(::open(input.c_str(), O_RDONLY), STDIN_FILENO);
    ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    const std::string filter = "--gtest_filter=Peers." + name;
    const std::string own = std::filesystem::read_symlink("/proc/self/exe").string();
    ::execl(own.c_str(), "renamed", filter.c_str(), static_cast<char*>(nullptr));
    return 1;
  });
}

/// What that process and its ranks have written to stderr.
std::string said(const test::Scratch& scratch) {
  const std::filesystem::path log = scratch.str() + ".log";
  const std::string text = test::get(log);
  std::filesystem::remove(log);
  return text;
}

/// Set in the processes that run_this_test_as starts.
const char* folder() { return std::getenv("LEVIN_PEERS_TEST"); }

TEST(Peers, AreThisProgramWithItsArguments) {
  if (folder() == nullptr) {
    const test::Scratch scratch;
    EXPECT_EQ(run_this_test_as("AreThisProgramWithItsArguments", scratch), 0);
    static_cast<void>(said(scratch));
    EXPECT_EQ(test::names_in(scratch.path()), (std::vector<std::string>{"0.of.2", "1.of.2"}));
    return;
  }
  const auto environment = comm::read_environment();
  if (environment.launcher == "alone") std::_Exit(run_peers({.num_processes = 2}));
  EXPECT_TRUE(environment.launcher_hosts_store);
  test::put(std::filesystem::path(folder()) /
                fmt::format("{}.of.{}", environment.rank.rank, environment.rank.world_size),
            "");
  std::_Exit(0);
}

TEST(Peers, AFailureOfOneIsTheirExitCode) {
  if (folder() == nullptr) {
    const test::Scratch scratch;
    EXPECT_EQ(run_this_test_as("AFailureOfOneIsTheirExitCode", scratch), 9);
    EXPECT_THAT(said(scratch), HasSubstr("restart 1 of 1"));
    EXPECT_EQ(test::names_in(scratch.path()), (std::vector<std::string>{"0", "1"}));
    return;
  }
  const auto environment = comm::read_environment();
  if (environment.launcher == "alone") {
    std::_Exit(run_peers({.num_processes = 2, .max_restarts = 1}));
  }
  test::put(std::filesystem::path(folder()) / std::to_string(environment.restart_count), "");
  if (environment.rank.rank == 1) std::_Exit(9);
  ::pause();
}

TEST(Peers, AFailureCountsWhateverTheProgramDoesWithItsChildren) {
  if (folder() == nullptr) {
    for (const char* how : {"ignores", "reaps"}) {
      const test::Scratch scratch;
      const int code =
          run_this_test_as("AFailureCountsWhateverTheProgramDoesWithItsChildren", scratch, how);
      const std::string words = said(scratch);
      EXPECT_TRUE(code == 9 || (code == 1 && how == std::string("reaps"))) << how << ": " << code;
      EXPECT_THAT(words, HasSubstr("levin error: rank 1 on ")) << how;
    }
    return;
  }
  const auto environment = comm::read_environment();
  if (environment.launcher == "alone") {
    if (std::getenv("LEVIN_PEERS_HOW") == std::string("ignores")) {
      ::signal(SIGCHLD, SIG_IGN);
    } else {
      std::thread([] {
        while (true) {
          if (::waitpid(-1, nullptr, 0) < 0) std::this_thread::yield();
        }
      }).detach();
    }
    std::_Exit(run_peers({.num_processes = 2}));
  }
  if (environment.rank.rank == 1) std::_Exit(9);
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

/// As programs do that show their state in ps.
void write_over_arguments() {
  std::ifstream file("/proc/self/stat");
  std::string stat((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  constexpr int kArgumentsStart = 48, kFirst = 3;  // as proc(5) counts them
  uintptr_t start = 0, end = 0;
  std::string skipped;
  for (int i = kFirst; i < kArgumentsStart; ++i) fields >> skipped;
  fields >> start >> end;
  for (uintptr_t at = start; at + 1 < end; ++at) {
    char* letter = reinterpret_cast<char*>(at);  // NOLINT: that is where they are
    if (*letter != 0) *letter = 'x';
  }
}

TEST(Peers, HaveTheArgumentsThatTheProgramWasStartedWith) {
  if (folder() == nullptr) {
    const test::Scratch scratch;
    EXPECT_EQ(run_this_test_as("HaveTheArgumentsThatTheProgramWasStartedWith", scratch), 0);
    EXPECT_EQ(test::names_in(scratch.path()), (std::vector<std::string>{"0", "1"}));
    static_cast<void>(said(scratch));
    return;
  }
  const auto environment = comm::read_environment();
  if (environment.launcher == "alone") {
    write_over_arguments();
    std::_Exit(run_peers({.num_processes = 2}));
  }
  std::ifstream in("/proc/self/cmdline");
  const std::string line((std::istreambuf_iterator<char>(in)), {});
  const bool same = line.find("HaveTheArgumentsThatTheProgramWasStartedWith") != std::string::npos;
  if (same) test::put(std::filesystem::path(folder()) / std::to_string(environment.rank.rank), "");
  std::_Exit(0);
}

TEST(Peers, AreToldOfTheInputThatTheyDoNotGet) {
  if (folder() == nullptr) {
    const test::Scratch scratch;
    const auto input = test::put(scratch.str() + ".in", "words");
    EXPECT_EQ(run_this_test_as("AreToldOfTheInputThatTheyDoNotGet", scratch, "", input.string()),
              0);
    EXPECT_THAT(said(scratch), HasSubstr("none of them receives its stdin"));
    EXPECT_EQ(run_this_test_as("AreToldOfTheInputThatTheyDoNotGet", scratch), 0);
    EXPECT_THAT(said(scratch), ::testing::Not(HasSubstr("stdin")));
    std::filesystem::remove(input);
    return;
  }
  if (comm::read_environment().launcher == "alone") {
    std::_Exit(run_peers({.num_processes = 2}));
  }
  std::_Exit(0);
}

/// As run_this_test_as, by that path and from its folder, with nothing below /proc.
int run_without_proc(const std::string& path, const test::Scratch& scratch,
                     const std::string& how) {
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe");
  return test::run_child([&] {
    ::setenv("LEVIN_PEERS_TEST", scratch.str().c_str(), 1);
    ::setenv("LEVIN_PEERS_HOW", how.c_str(), 1);
    if (!test::mount_small_disk("/proc", 4096)) return test::kSkipped;
    if (::chdir(own.parent_path().c_str()) != 0) return 1;
    ::execl(path.c_str(), path.c_str(), "--gtest_filter=Peers.AreStartedWithoutProcToo",
            static_cast<char*>(nullptr));
    return 1;
  });
}

// As in a container of somebody careful. The path by which it was started is another way.
TEST(Peers, AreStartedWithoutProcToo) {
  if (folder() == nullptr) {
    const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe");
    const test::Scratch scratch;
    const int code = run_without_proc(own.string(), scratch, "");
    if (code == test::kSkipped) GTEST_SKIP() << "nobody here may mount anything";
    EXPECT_EQ(code, 0);
    EXPECT_EQ(test::names_in(scratch.path()), (std::vector<std::string>{"0.of.2", "1.of.2"}));
    const std::string near = "./" + own.filename().string();
    EXPECT_EQ(run_without_proc(near, scratch, "elsewhere"), 7);
    EXPECT_THAT(test::get(scratch / "error"),
                HasSubstr("launch.program: this program cannot start itself again as several "
                          "ranks: there is no /proc/self/exe and no file '" +
                          near +
                          "'; mount /proc, start the program by its absolute path, or start its "
                          "ranks with mpirun or srun"));
    return;
  }
  const std::filesystem::path scratch = folder();
  const auto environment = comm::read_environment();
  if (environment.launcher != "alone") {
    test::put(scratch / fmt::format("{}.of.{}", environment.rank.rank, environment.rank.world_size),
              "");
    std::_Exit(0);
  }
  const bool is_elsewhere = std::getenv("LEVIN_PEERS_HOW") == std::string("elsewhere");
  if (is_elsewhere && ::chdir("/") != 0) std::_Exit(1);
  try {
    std::_Exit(run_peers({.num_processes = 2}));
  } catch (const std::exception& error) {
    test::put(scratch / "error", error.what());
    std::_Exit(7);
  }
}

}  // namespace
}  // namespace levin::launch
