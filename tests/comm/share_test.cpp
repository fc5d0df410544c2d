// ProcessGroup::share: one memory of all ranks of a host, of which each writes its own part.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "levin/comm/process_group.h"
#include "tests/comm/backend_table.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

namespace fs = std::filesystem;
using levin::comm::ProcessGroup;
using levin::comm::SharedTensor;
using levin::test::connect;
using levin::test::difference;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Share, WhatARankWritesAllReadAfterABarrier) {
  EXPECT_THAT(
      run_world(3,
                [](int64_t rank, const auto&) {
                  auto group = connect("shm");
                  std::string wrong;
                  // Of no page's length, within one page and over several.
                  for (const std::vector<int64_t>& counts :
                       {std::vector<int64_t>{3, 0, 5}, {0, 0, 1}, {10'000, 70'001, 3}, {4, 4, 4}}) {
                    const SharedTensor shared = group.share(counts, at::kDouble);
                    std::vector<at::Tensor> parts;
                    for (int64_t from = 0; from < 3; ++from) {
                      const auto count = counts[static_cast<size_t>(from)];
                      parts.push_back(torch::arange(count, at::kDouble) + 100.0 * (from + 1));
                    }
                    wrong +=
                        difference("memory", shared.whole, torch::zeros_like(torch::cat(parts)));
                    group.barrier();
                    shared.own.copy_(parts[static_cast<size_t>(rank)]);
                    group.barrier();
                    wrong += difference("memory", shared.whole, torch::cat(parts));
                    group.barrier();
                  }
                  return wrong;
                }),
      Each(""));
}

TEST(Share, IsEmptyWhereNobodyHasAPart) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          const auto shared =
                              connect("shm").share(std::vector<int64_t>{0, 0}, at::kFloat);
                          return c10::str(shared.whole.numel(), " ", shared.own.numel());
                        }),
              Each("0 0"));
}

TEST(Share, OfOneRankIsItsOwn) {
  const SharedTensor shared = ProcessGroup().share(std::vector<int64_t>{5}, at::kInt);
  shared.own.fill_(7);
  EXPECT_TRUE(at::equal(shared.whole, torch::full({5}, 7, at::kInt)));
  EXPECT_NE(shared.whole.data_ptr(), shared.own.data_ptr());
}

TEST(Share, OutlivesItsGroup) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          SharedTensor shared;
                          {
                            auto group = connect("shm");
                            shared = group.share(std::vector<int64_t>{1, 1}, at::kFloat);
                            shared.own.fill_(rank + 1.0);
                            group.barrier();
                          }
                          return difference("memory", shared.whole, torch::tensor({1.F, 2.F}));
                        }),
              Each(""));
}

TEST(Share, TheKernelRefusesToWriteToTheWhole) {
  const SharedTensor shared = ProcessGroup().share(std::vector<int64_t>{5}, at::kFloat);
  EXPECT_EQ(levin::test::run_child([&] {
              std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler ends a process by exit
              shared.whole.data_ptr<float>()[2] = 1;
              return 0;
            }),
            -SIGSEGV);
  EXPECT_EQ(levin::test::run_child([&] {
              shared.own.data_ptr<float>()[2] = 1;
              return shared.whole.data_ptr<float>()[2] == 1 ? 0 : 1;
            }),
            0);
}

TEST(Share, RanksThatWantDifferentPartsAreNamed) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          auto group = connect("shm");
                          return error_of(
                              [&] { group.share(std::vector<int64_t>{1, rank + 2}, at::kFloat); });
                        }),
              Each(HasSubstr("share of ")));
  const auto id =
      levin::test::error_id([] { ProcessGroup().share(std::vector<int64_t>{1, 2}, at::kInt); });
  EXPECT_EQ(id, "comm.tensor");
}

TEST(Share, IsRefusedWhereRanksTalkByMessages) {
  EXPECT_THAT(
      run_world(2,
                [](int64_t, const auto&) {
                  auto group = connect("gloo");
                  group.barrier();
                  return error_of([&] { group.share(std::vector<int64_t>{1, 1}, at::kFloat); });
                }),
      Each(StartsWith(
          "comm.unsupported: the gloo backend shares no memory between its ranks; use shm")));
}

/// Processes that have that file open or mapped; it has no name by which another could.
int64_t num_holders(ino_t inode) {
  int64_t holders = 0;
  for (const auto& process : fs::directory_iterator("/proc")) {
    if (process.path().filename().string().find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    std::ifstream maps(process.path() / "maps");
    bool holds = false;
    for (std::string line; std::getline(maps, line);) {
      const bool is_ours = line.find("/memfd:levin") != std::string::npos;
      holds |= is_ours && line.find(" " + std::to_string(inode) + " ") != std::string::npos;
    }
    std::error_code ignored;
    for (const auto& file : fs::directory_iterator(process.path() / "fd", ignored)) {
      struct stat status = {};
      holds |= ::stat(file.path().c_str(), &status) == 0 && status.st_ino == inode &&
               fs::read_symlink(file.path(), ignored).string().starts_with("/memfd:levin");
    }
    holders += holds ? 1 : 0;
  }
  return holders;
}

/// Of the memory at that address.
ino_t inode_at(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    size_t begin = 0, end = 0;
    unsigned long inode = 0;
    std::sscanf(line.c_str(), "%zx-%zx %*s %*s %*s %lu", &begin, &end, &inode);
    const auto at = reinterpret_cast<size_t>(address);
    if (begin <= at && at < end) return inode;
  }
  return 0;
}

TEST(Share, NobodyHasTheMemoryAfterKill9) {
  const levin::test::Scratch scratch;
  std::vector<pid_t> ranks;
  for (int64_t rank = 0; rank < 2; ++rank) {
    ranks.push_back(levin::test::start_child([&, rank] {
      at::set_num_threads(1);
      levin::test::set_rank(rank, 2, scratch.path());
      auto group = connect("shm");
      const SharedTensor shared = group.share(std::vector<int64_t>{1 << 20, 1 << 20}, at::kFloat);
      shared.own.fill_(1);
      group.barrier();
      const auto file = scratch / ("inode." + std::to_string(rank));
      std::ofstream(file.string() + ".new") << inode_at(shared.whole.data_ptr());
      fs::rename(file.string() + ".new", file);
      for (;;) ::pause();
      return 0;
    }));
  }
  ino_t inodes[2] = {};
  for (int64_t rank = 0; rank < 2; ++rank) {
    const auto file = scratch / ("inode." + std::to_string(rank));
    for (int i = 0; i < 6000 && !fs::exists(file); ++i) ::usleep(10'000);
    std::ifstream(file) >> inodes[rank];
  }
  ASSERT_NE(inodes[0], 0U);
  EXPECT_EQ(inodes[0], inodes[1]);
  EXPECT_EQ(num_holders(inodes[0]), 2);
  ::kill(ranks[0], SIGKILL);
  levin::test::wait_for(ranks[0]);
  EXPECT_EQ(num_holders(inodes[0]), 1);
  ::kill(ranks[1], SIGKILL);
  levin::test::wait_for(ranks[1]);
  EXPECT_EQ(num_holders(inodes[0]), 0);
}

}  // namespace
