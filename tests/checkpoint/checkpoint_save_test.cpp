// A checkpoint that several ranks write: the bytes that one would have written, or none.
#include "levin/checkpoint/checkpoint_save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/saving/together_impl.h"
#include "tests/checkpoint/by_ranks.h"
#include "tests/support/error_of.h"
#include "tests/support/file_limit.h"
#include "tests/support/small_disk.h"

namespace {

namespace fs = std::filesystem;
using levin::Checkpoint;
using levin::load_checkpoint;
using levin::State;
using levin::test::connect;
using levin::test::difference;
using levin::test::error_of;
using levin::test::get;
using levin::test::held_by_all;
using levin::test::kPieceFloats;
using levin::test::limit_files;
using levin::test::names_in;
using levin::test::other_files;
using levin::test::rows_of;
using levin::test::run_world;
using levin::test::sample;
using levin::test::save_together;
using levin::test::Scratch;
using levin::test::told_by;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// What ranks say that save what `of` gives for each.
template <class Of>
std::vector<std::string> save_on(int64_t ranks, const fs::path& folder, const Of& of,
                                 const levin::SaveCheckpointOptions& options = {}) {
  return run_world(ranks, [&](int64_t rank, const fs::path&) {
    const auto group = connect();
    const Checkpoint checkpoint = of(rank);
    return told_by([&] { save_together(folder, checkpoint, group, options); });
  });
}

TEST(CheckpointSave, OfAnyNumberOfRanksAreTheSameFiles) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "1", held_by_all(3, 0));
  for (const int64_t ranks : {2, 4}) {
    const fs::path folder = scratch / std::to_string(ranks);
    EXPECT_THAT(save_on(ranks, folder, [](int64_t rank) { return held_by_all(3, rank); }),
                Each("no error"));
    EXPECT_EQ(other_files(scratch / "1", folder), "");
    EXPECT_EQ(difference(held_by_all(3, 0), load_checkpoint(folder)), "") << ranks;
  }
}

TEST(CheckpointSave, OfAnyNumberOfRanksAreTheSameShards) {
  const Scratch scratch;
  const levin::SaveCheckpointOptions options{.max_shard_bytes = 1000};
  levin::save_checkpoint(scratch / "1", held_by_all(3, 0), options);
  EXPECT_THAT(names_in(scratch / "1"),
              ElementsAre("manifest.json", "model-00001-of-00003.safetensors",
                          "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
                          "model.safetensors.index.json", "training_state.json",
                          "training_state.safetensors"));
  EXPECT_THAT(save_on(
                  3, scratch / "3", [](int64_t rank) { return held_by_all(3, rank); }, options),
              Each("no error"));
  EXPECT_EQ(other_files(scratch / "1", scratch / "3"), "");
  EXPECT_EQ(difference(held_by_all(3, 0), load_checkpoint(scratch / "3")), "");
}

/// Each rank its rows, the last rank none.
Checkpoint in_rows(int64_t rank) {
  const Checkpoint whole = held_by_all(3, 0);
  const at::Tensor embedding = whole.weights.at("model").tensor("embedding");
  const int64_t cut = kPieceFloats / 2 + 500;  // inside a piece
  Checkpoint own = whole;
  const int64_t begin = rank == 0 ? 0 : rank == 1 ? cut : embedding.size(0);
  const int64_t end = rank == 0 ? cut : embedding.size(0);
  own.weights["model"].set("embedding", rows_of(embedding, begin, end));
  const at::Tensor half = whole.weights.at("model").tensor("half");
  own.weights["model"].set("half", rows_of(half, rank == 0 ? 0 : 5, rank == 0 ? 5 : 7));
  if (rank == 2) own.weights["model"].set("half", rows_of(half, 7, 7));
  return own;
}

TEST(CheckpointSave, OfPartsIsTheWhole) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "1", held_by_all(3, 0));
  EXPECT_THAT(save_on(3, scratch / "3", in_rows), Each("no error"));
  for (const char* name :
       {"model.safetensors", "training_state.safetensors", "training_state.json"}) {
    EXPECT_EQ(get(scratch / "1" / name), get(scratch / "3" / name)) << name;
  }
  EXPECT_EQ(difference(held_by_all(3, 0), load_checkpoint(scratch / "3")), "");
}

// As LocalSGD leaves them between its averages: nothing is mixed.
TEST(CheckpointSave, OfRanksThatHoldOtherValuesIsRankZeros) {
  const Scratch scratch;
  const auto own = [](int64_t rank) {
    Checkpoint checkpoint = held_by_all(3, rank);
    // One rank has trained, and rows of the embedding that it has not met are as they were.
    if (rank == 1)
      checkpoint.training.set("optimizer", held_by_all(4, 1).training.child("optimizer"));
    if (rank == 1) {
      at::Tensor embedding = checkpoint.weights["model"].tensor("embedding");
      embedding.narrow(0, kPieceFloats - 77, 1).fill_(-1);
    }
    return checkpoint;
  };
  EXPECT_THAT(save_on(2, scratch / "c", own), Each("no error"));
  EXPECT_EQ(difference(held_by_all(3, 0), load_checkpoint(scratch / "c")), "");
}

/// All ranks say the same, which begins and goes on so; nothing is left in the folder.
void expect_refused(const std::function<Checkpoint(int64_t rank)>& of, const std::string& begins,
                    const std::string& says) {
  const Scratch scratch;
  const auto said = save_on(2, scratch / "c", of);
  EXPECT_THAT(said, Each(said.front()));
  EXPECT_THAT(said.front(), AllOf(StartsWith(begins), HasSubstr(says)));
  EXPECT_TRUE(names_in(scratch.path()).empty());
}

Checkpoint with_weight(const levin::TensorSlice& slice) {
  Checkpoint checkpoint;
  checkpoint.weights["model"].set("w", slice);
  return checkpoint;
}

TEST(CheckpointSave, OfRowsThatNobodyHasIsAnErrorOfAllRanks) {
  const at::Tensor whole = torch::ones({8, 2});
  expect_refused(
      [&](int64_t rank) { return with_weight(rows_of(whole, rank * 5, rank == 0 ? 3 : 8)); },
      "checkpoint.slice: on rank 0: no rank has the bytes from", "of model.safetensors, in 'w'");
  expect_refused([&](int64_t rank) { return with_weight(rows_of(whole, rank * 4, rank * 3 + 4)); },
                 "checkpoint.slice: on rank 0: no rank has the bytes from", "in 'w'");
}

TEST(CheckpointSave, OfRowsThatTwoHaveIsAnErrorOfAllRanks) {
  const at::Tensor whole = torch::ones({8, 2});
  expect_refused(
      [&](int64_t rank) { return with_weight(rows_of(whole, rank * 3, rank == 0 ? 4 : 8)); },
      "checkpoint.slice: on rank 0: two ranks have the bytes from", "in 'w'");
}

TEST(CheckpointSave, OfColumnsIsAnErrorThatSaysWhatToDo) {
  const at::Tensor whole = torch::ones({8, 2});
  expect_refused(
      [&](int64_t rank) { return with_weight({whole.narrow(1, rank, 1), {8, 2}, {0, rank}}); },
      "checkpoint.slice: on rank 0: 'w' of [8, 2] has the shard [8, 1] at offset [0, 0] here",
      "redistribute it along dim 0");
}

TEST(CheckpointSave, OfAPartHereAndAWholeThereIsAnErrorOfAllRanks) {
  const at::Tensor whole = torch::ones({8, 2});
  expect_refused(
      [&](int64_t rank) {
        Checkpoint checkpoint = with_weight(rows_of(whole, 0, 8));
        if (rank == 0) checkpoint.weights["model"].set("w", whole);
        return checkpoint;
      },
      "checkpoint.ranks: on rank 1: 'w' is a shard here", "save the same tensors on all ranks");
  expect_refused(
      [&](int64_t rank) {
        const at::Tensor other = rank == 0 ? whole : torch::ones({9, 2});
        return with_weight(rows_of(other, rank * 4, rank * 4 + 4));
      },
      "checkpoint.ranks: on rank 1: 'w' is a shard of a Float of [9, 2] here", "[8, 2] on rank 0");
}

TEST(CheckpointSave, ThatCannotBePlannedIsTheSameErrorOfAllRanks) {
  expect_refused(
      [](int64_t rank) {
        Checkpoint checkpoint = sample(1);
        if (rank == 0) checkpoint.weights["model"].set("z", torch::eye(2).to_sparse());
        return checkpoint;
      },
      "checkpoint.dtype: on rank 0: z is a sparse tensor", "convert it first");
  expect_refused([](int64_t) { return Checkpoint{.weights = {{"a/b", State()}}}; },
                 "checkpoint.path: on rank 0: got weights named 'a/b'", "");
}

TEST(CheckpointSave, ThatFailsOnOneRankFailsOnAllAndLeavesTheOneBefore) {
  for (const int64_t failing : {0, 2}) {
    const Scratch scratch;
    levin::save_checkpoint(scratch / "c", sample(1));
    const auto said = run_world(3, [&](int64_t rank, const fs::path&) {
      const auto group = connect();
      if (rank == failing) limit_files(1000);
      return told_by([&] { save_together(scratch / "c", held_by_all(2, rank), group); });
    });
    EXPECT_THAT(said, Each(said.front()));
    EXPECT_THAT(said.front(), AllOf(StartsWith(fmt::format("files.write: on rank {}: ", failing)),
                                    HasSubstr("file too large")));
    EXPECT_THAT(names_in(scratch.path()), ElementsAre("c"));
    EXPECT_EQ(difference(sample(1), load_checkpoint(scratch / "c")), "");
  }
}

TEST(CheckpointSave, WhatIsNoErrorOfLevinsOnOneRankIsThrownOnAllAsOne) {
  const auto said = run_world(2, [](int64_t rank, const fs::path&) {
    auto group = connect();
    return told_by([&] {
      levin::detail::together(group, [&](State&) {
        if (rank == 1) throw std::bad_alloc();
      });
    });
  });
  EXPECT_THAT(said, Each(StartsWith("checkpoint.failed: on rank 1: std::bad_alloc")));
}

TEST(CheckpointSave, ToAFolderThatARankDoesNotSeeIsAnErrorOfAllRanks) {
  const Scratch scratch;
  const auto said = run_world(2, [&](int64_t rank, const fs::path&) -> std::string {
    // A disk of its own hides the folder from this rank.
    const bool may = rank == 0 || levin::test::mount_small_disk(scratch.str(), size_t{1} << 20);
    auto group = connect();
    if (group.any(!may)) return "skipped";
    return told_by([&] { save_together(scratch / "c", held_by_all(2, rank), group); });
  });
  if (said.front() == "skipped") GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_THAT(said, Each(said.front()));
  EXPECT_THAT(said.front(),
              AllOf(StartsWith("files.write: on rank 1: "),
                    HasSubstr("does not exist here, although another rank made it; give a folder "
                              "that all hosts share, or set save_on_each_node")));
}

/// On a disk that the ranks fill up while they write. 0: all went as it should.
int fill_up_together(const Scratch& scratch) {
  at::set_num_threads(1);
  if (!levin::test::mount_small_disk(scratch.str(), size_t{12} << 20)) return levin::test::kSkipped;
  levin::save_checkpoint(scratch / "c", sample(1));
  const auto said = save_on(2, scratch / "c", [](int64_t rank) { return held_by_all(2, rank); });
  for (const std::string& one : said) {
    if (one != said.front() || !one.starts_with("files.write: on rank ")) return 1;
    if (one.find("no space left on device; free some space") == std::string::npos) return 2;
  }
  if (!difference(sample(1), load_checkpoint(scratch / "c")).empty()) return 3;
  return names_in(scratch.path()).size() == 1 ? 0 : 4;
}

TEST(CheckpointSave, OnAFullDiskFailsOnAllRanksAndLeavesTheOneBefore) {
  const Scratch scratch;
  const int code = levin::test::run_child([&] { return fill_up_together(scratch); });
  if (code == levin::test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0) << "see fill_up_together";
}

TEST(CheckpointSave, OfTwoJobsToOneNameIsOneOfThem) {
  const Scratch scratch;
  const auto jobs = run_world(2, [&](int64_t job, const fs::path&) {
    for (int64_t i = 0; i < 20; ++i) levin::save_checkpoint(scratch / "c", sample(2 * i + job));
    return std::string();
  });
  EXPECT_THAT(jobs, Each(""));
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("c"));
  const Checkpoint loaded = load_checkpoint(scratch / "c");
  const int64_t seed = loaded.training.child("optimizer").integer("step");
  EXPECT_EQ(difference(sample(seed), loaded), "");
  EXPECT_GE(seed, 38);
}

TEST(CheckpointSave, IsReadWhileTheNextOneIsWritten) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", sample(1));
  const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) -> std::string {
    if (rank == 0) {
      for (int64_t seed = 2; seed < 60; ++seed) levin::save_checkpoint(scratch / "c", sample(seed));
      levin::test::put(folder / "done", "");
      return "";
    }
    int64_t newest = 0, read = 0;
    while (!fs::exists(folder / "done")) {
      Checkpoint loaded;
      const std::string error = error_of([&] { loaded = load_checkpoint(scratch / "c"); });
      if (error != "no error") return error;
      const int64_t seed = loaded.training.child("optimizer").integer("step");
      const std::string other = difference(sample(seed), loaded);
      if (!other.empty() || seed < newest) return "got " + other;
      newest = seed;
      ++read;
    }
    return read > 0 ? "" : "read none";
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
