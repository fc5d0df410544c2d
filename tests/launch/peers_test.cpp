// run_peers: this test program starts itself again, as a trainer's program does.
#include "levin/launch/peers.h"

#include <gtest/gtest.h>

#include "levin/comm/environment/environment.h"
#include "tests/support/child_process.h"
#include "tests/support/scratch.h"

namespace levin::launch {
namespace {

/// In a process of its own, which runs this one test again: bare it supervises, as a rank it
/// leaves a file.
int run_this_test_as(const std::string& name, const test::Scratch& scratch) {
  return test::run_child([&] {
    ::setenv("LEVIN_PEERS_TEST", scratch.str().c_str(), 1);
    const std::string filter = "--gtest_filter=Peers." + name;
    const std::string own = std::filesystem::read_symlink("/proc/self/exe").string();
    ::execl(own.c_str(), "renamed", filter.c_str(), static_cast<char*>(nullptr));
    return 1;
  });
}

/// Set in the processes that run_this_test_as starts.
const char* folder() { return std::getenv("LEVIN_PEERS_TEST"); }

TEST(Peers, AreThisProgramWithItsArguments) {
  if (folder() == nullptr) {
    const test::Scratch scratch;
    EXPECT_EQ(run_this_test_as("AreThisProgramWithItsArguments", scratch), 0);
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

}  // namespace
}  // namespace levin::launch
