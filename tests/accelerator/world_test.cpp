// join_launch: a program that was started by itself becomes as many processes as it wants; one that
// a launcher started stays what it is.
#include "levin/accelerator/engine/world.h"

#include <gtest/gtest.h>

#include "levin/accelerator/engine/device.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace {

using levin::processes_alone;
using levin::processes_for;
using levin::test::Scratch;

TEST(World, OneProcessForEachGpuUnlessAskedOtherwise) {
  for (const char* kind : {"auto", "gpu", "cuda"}) EXPECT_EQ(processes_for(kind, 8), 8) << kind;
  EXPECT_EQ(processes_for("auto", 0), 1);
  EXPECT_EQ(processes_for("cpu", 8), 1);
  EXPECT_EQ(processes_alone({.devices_alone = 8}), 8);
  EXPECT_EQ(processes_alone({.devices = 2, .devices_alone = 8}), 2);
  EXPECT_EQ(processes_alone({}), 1);
}

TEST(World, AProgramByItselfStartsThem) {
  constexpr const char* kFolder = "LEVIN_WORLD_TEST";
  const char* folder = std::getenv(kFolder);
  if (folder == nullptr) {  // starts this test again, in a process that nobody launched
    const Scratch scratch;
    const int code = levin::test::run_child([&] {
      ::setenv(kFolder, scratch.str().c_str(), 1);
      const std::string own = std::filesystem::read_symlink("/proc/self/exe").string();
      ::execl(own.c_str(), own.c_str(), "--gtest_filter=World.AProgramByItselfStartsThem",
              static_cast<char*>(nullptr));
      return 1;
    });
    EXPECT_EQ(code, 0);
    EXPECT_EQ(levin::test::names_in(scratch.path()),
              (std::vector<std::string>{"0.of.3", "1.of.3", "2.of.3"}));
    return;
  }
  const auto environment = levin::join_launch({.devices_alone = 3});
  levin::test::put(std::filesystem::path(folder) /
                       fmt::format("{}.of.{}", environment.rank.rank, environment.rank.world_size),
                   "");
  std::_Exit(0);
}

TEST(World, ALaunchersProcessesStayAsManyAsItStarted) {
  const auto words = levin::test::run_world(2, [](int64_t rank, const std::filesystem::path&) {
    const auto environment = levin::join_launch({.devices_alone = 8});
    const bool stays = environment.rank.rank == rank && environment.rank.world_size == 2;
    return stays ? "" : "of another number";
  });
  EXPECT_EQ(words, (std::vector<std::string>{"", ""}));
}

TEST(World, WhatProcessesCannotMeetByIsFoundBeforeTheyStart) {
  const auto id_of = [](const levin::WorldOptions& options) {
    return levin::test::error_id([&] { levin::join_launch(options); });
  };
  EXPECT_EQ(id_of({.comm = {.backend = "glo"}}), "comm.backend");
  EXPECT_EQ(id_of({.comm = {.timeout_s = 0}}), "comm.options");
  EXPECT_EQ(id_of({.comm = {.connect_timeout_s = -1}}), "comm.options");
  EXPECT_EQ(id_of({.comm = {.prepare_timeout_s = -1}}), "comm.options");
  EXPECT_EQ(id_of({.num_nodes = 0}), "accelerator.devices");
}

}  // namespace
