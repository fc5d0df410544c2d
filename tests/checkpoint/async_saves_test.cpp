// Checkpoints that are written behind training: what they hold, when they are there, and what
// becomes of those that fail.
#include "levin/checkpoint/async_saves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "levin/files/atomic.h"
#include "tests/checkpoint/by_ranks.h"
#include "tests/support/error_of.h"
#include "tests/support/file_limit.h"
#include "tests/support/small_disk.h"

namespace {

namespace fs = std::filesystem;
using levin::AsyncSaves;
using levin::Checkpoint;
using levin::load_checkpoint;
using levin::test::connect;
using levin::test::difference;
using levin::test::held_by_all;
using levin::test::limit_files;
using levin::test::names_in;
using levin::test::other_files;
using levin::test::run_world;
using levin::test::sample;
using levin::test::Scratch;
using levin::test::told_by;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// As steps that come after the save do: every tensor is another one.
void train_on(const Checkpoint& checkpoint) {
  for (const auto& [name, value] : checkpoint.weights.at("model").values()) {
    checkpoint.weights.at("model").tensor(name).fill_(-1);
  }
  checkpoint.training.child("optimizer").tensor("exp_avg").fill_(-1);
}

template <class Condition>
bool soon(AsyncSaves& saves, const Condition& condition) {
  for (int i = 0; i < 2000 && !condition(); ++i) {
    saves.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

TEST(AsyncSaves, HoldTheValuesOfTheSaveAndAreTheFilesOfASaveThatIsWaitedFor) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "wanted", held_by_all(3, 0));
  for (const int64_t ranks : {1, 2}) {
    const fs::path folder = scratch / std::to_string(ranks);
    const auto words = run_world(ranks, [&](int64_t rank, const fs::path&) -> std::string {
      auto group = connect();
      AsyncSaves saves(group);
      const Checkpoint checkpoint = held_by_all(3, rank);
      bool is_there = false;
      saves.start(folder, checkpoint, {}, [&](const std::exception_ptr& failure) {
        is_there = !failure && fs::exists(folder);
      });
      train_on(checkpoint);
      if (!soon(saves, [&] { return is_there; })) return "it did not come";
      return saves.is_under_way() ? "under way" : "";
    });
    EXPECT_THAT(words, Each(""));
    EXPECT_EQ(other_files(scratch / "wanted", folder), "") << ranks;
  }
}

TEST(AsyncSaves, ANextOneWaitsForTheOneBefore) {
  const Scratch scratch;
  const auto words = run_world(2, [&](int64_t rank, const fs::path&) -> std::string {
    AsyncSaves saves(connect());
    std::string order;
    for (const int64_t seed : {1, 2, 3}) {
      const Checkpoint checkpoint = held_by_all(seed, rank);
      saves.start(scratch / std::to_string(seed), checkpoint, {},
                  [&order, seed](const std::exception_ptr&) { order += std::to_string(seed); });
      train_on(checkpoint);
      order += "s";
    }
    saves.finish();
    saves.finish();
    return order;
  });
  EXPECT_THAT(words, Each("s1s2s3"));
  for (const int64_t seed : {1, 2, 3}) {
    EXPECT_EQ(difference(held_by_all(seed, 0), load_checkpoint(scratch / std::to_string(seed))),
              "");
  }
}

TEST(AsyncSaves, OneThatFailsOnOneRankIsToldOnAllAtOneStep) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", sample(1));
  const auto words = run_world(2, [&](int64_t rank, const fs::path&) {
    auto group = connect();
    AsyncSaves saves(group);
    if (rank == 1) limit_files(1000);
    saves.start(scratch / "c", held_by_all(2, rank), {});
    std::string error = "no error";
    int64_t step = 0;
    while (error == "no error" && step < 2000) {
      error = told_by([&] { saves.poll(); });
      ++step;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return fmt::format("step {}: {}", step, error);
  });
  EXPECT_THAT(words, Each(words.front()));
  EXPECT_THAT(words.front(),
              AllOf(HasSubstr("files.write: on rank 1: "), HasSubstr("file too large")));
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("c"));
  EXPECT_EQ(difference(sample(1), load_checkpoint(scratch / "c")), "");
}

/// On a disk that is full before the rank has written its part. 0: all went as it should.
int fill_up_behind(const Scratch& scratch) {
  at::set_num_threads(1);
  if (!levin::test::mount_small_disk(scratch.str(), size_t{12} << 20)) return levin::test::kSkipped;
  levin::save_checkpoint(scratch / "c", sample(1));
  const auto said = run_world(2, [&](int64_t rank, const fs::path&) {
    AsyncSaves saves(connect());
    std::string told = told_by([&] { saves.start(scratch / "c", held_by_all(2, rank), {}); });
    for (int64_t step = 0; told == "no error" && step < 2000; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      told = told_by([&] { saves.poll(); });
    }
    return told;
  });
  for (const std::string& one : said) {
    if (one != said.front() || !one.starts_with("files.write: on rank ")) return 1;
    if (one.find("no space left on device; free some space") == std::string::npos) return 2;
  }
  if (!difference(sample(1), load_checkpoint(scratch / "c")).empty()) return 3;
  return names_in(scratch.path()).size() == 1 ? 0 : 4;
}

TEST(AsyncSaves, OnAFullDiskFailOnAllRanksAndLeaveTheOneBefore) {
  const Scratch scratch;
  const int code = levin::test::run_child([&] { return fill_up_behind(scratch); });
  if (code == levin::test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0) << "see fill_up_behind";
}

/// Each host has its own disk, of which one fills up. 0: all went as it should.
std::string full_on_one(int64_t rank, const Scratch& scratch,
                        const levin::comm::ProcessGroup& group) {
  fs::current_path(scratch.path());
  levin::save_checkpoint("c", sample(1));
  AsyncSaves saves(group);
  std::string told =
      told_by([&] { saves.start("c", held_by_all(2, rank), {.save_on_each_node = true}); });
  for (int64_t step = 0; told == "no error" && step < 2000; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    told = told_by([&] { saves.poll(); });
  }
  if (!difference(sample(1), load_checkpoint("c")).empty()) return "the one before is not there";
  return names_in(".").size() == 1 ? told : "something is left";
}

// On rank 1 alone the writing thread meets the end of its disk.
TEST(AsyncSaves, OnADiskThatIsFullForOneRankFailOnAll) {
  const Scratch first, second;
  const auto said = run_world(2, [&](int64_t rank, const fs::path&) -> std::string {
    const bool may = rank == 0 || levin::test::mount_small_disk(second.str(), size_t{8} << 20);
    auto group = connect();
    if (group.any(!may)) return "skipped";
    return full_on_one(rank, rank == 0 ? first : second, group);
  });
  if (said.front() == "skipped") GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_THAT(said, Each(said.front()));
  EXPECT_THAT(said.front(), AllOf(StartsWith("files.write: on rank 1: "),
                                  HasSubstr("no space left on device; free some space")));
}

TEST(AsyncSaves, GivenUpLeaveNothing) {
  const Scratch scratch;
  {
    AsyncSaves saves{levin::comm::ProcessGroup()};
    saves.start(scratch / "c", held_by_all(2, 0), {});
    saves.drop();
    saves.start(scratch / "d", held_by_all(2, 0), {});
  }
  EXPECT_TRUE(names_in(scratch.path()).empty());
}

TEST(AsyncSaves, KilledAtAnyMomentLeaveTheOneBefore) {
  for (int round = 0; round < 12; ++round) {
    const Scratch scratch;
    levin::save_checkpoint(scratch / "c", sample(1));
    int begun[2];
    ASSERT_EQ(::pipe(begun), 0);
    const pid_t child = levin::test::start_child([&] {
      at::set_num_threads(1);
      AsyncSaves saves{levin::comm::ProcessGroup()};
      saves.start(scratch / "c", held_by_all(2, 0), {});
      if (::write(begun[1], "", 1) != 1) return 1;
      for (;;) saves.poll();
      return 0;
    });
    char byte = 0;
    ASSERT_EQ(::read(begun[0], &byte, 1), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(round * 12));
    ::kill(child, SIGKILL);
    ASSERT_EQ(levin::test::wait_for(child), -SIGKILL);
    ::close(begun[0]);
    ::close(begun[1]);
    const Checkpoint loaded = load_checkpoint(scratch / "c");
    EXPECT_TRUE(difference(sample(1), loaded).empty() ||
                difference(held_by_all(2, 0), loaded).empty());
    levin::files::remove_stale_staging(scratch.path());
    EXPECT_THAT(names_in(scratch.path()), ElementsAre("c"));
  }
}

}  // namespace
