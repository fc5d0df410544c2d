// Hosts that share no disk: each has a folder of its ranks' parts, which are joined.
#include "levin/checkpoint/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "tests/checkpoint/by_ranks.h"
#include "tests/support/error_of.h"

namespace {

namespace fs = std::filesystem;
using levin::Checkpoint;
using levin::CheckpointReader;
using levin::load_checkpoint;
using levin::merge_checkpoints;
using levin::test::connect;
using levin::test::difference;
using levin::test::error_of;
using levin::test::get;
using levin::test::held_by_all;
using levin::test::kPieceFloats;
using levin::test::other_files;
using levin::test::rows_of;
using levin::test::run_world;
using levin::test::same_bits;
using levin::test::sample;
using levin::test::save_together;
using levin::test::Scratch;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kRows = kPieceFloats + 1000;

/// A quarter of the rows of one tensor each, all of the others.
Checkpoint in_quarters(int64_t rank, int64_t seed = 3) {
  Checkpoint own = held_by_all(seed, rank);
  const at::Tensor whole = own.weights["model"].tensor("embedding");
  own.weights["model"].set("embedding", rows_of(whole, rank * kRows / 4, (rank + 1) * kRows / 4));
  return own;
}

/// Four ranks on two hosts, which save to folders of two names here.
template <class Of>
void save_on_two_hosts(const Scratch& scratch, const Of& of, const std::string& name = "host") {
  const auto said = run_world(4, [&](int64_t rank, const fs::path&) {
    const auto group = connect();
    const fs::path folder = scratch / (name + std::to_string(rank / 2));
    const Checkpoint checkpoint = of(rank);
    return error_of([&] { save_together(folder, checkpoint, group, {.save_on_each_node = true}); });
  });
  EXPECT_THAT(said, Each("no error"));
}

TEST(SaveOnEachNode, OfWhatAllRanksHaveIsTheWholeOnEachHost) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "whole", held_by_all(3, 0));
  save_on_two_hosts(scratch, [](int64_t rank) { return held_by_all(3, rank); });
  EXPECT_EQ(difference(held_by_all(3, 0), load_checkpoint(scratch / "host0")), "");
  EXPECT_EQ(get(scratch / "host0/model.safetensors"), get(scratch / "host1/model.safetensors"));
  EXPECT_EQ(difference(held_by_all(3, 0).weights.at("model"),
                       load_checkpoint(scratch / "host1").weights.at("model")),
            "");
}

TEST(SaveOnEachNode, OfPartsHoldsTheHostsOwnAndSaysWhatItLacks) {
  const Scratch scratch;
  save_on_two_hosts(scratch, [](int64_t rank) { return in_quarters(rank); });
  CheckpointReader second(scratch / "host1");
  EXPECT_TRUE(same_bits(second.rows("model", "embedding", kRows / 2, kRows),
                        torch::arange(kRows / 2, kRows, torch::kFloat) + 3));
  EXPECT_TRUE(same_bits(second.tensor("model", "half"), torch::full({7, 3}, 3, torch::kBFloat16)));
  EXPECT_THAT(error_of([&] { second.rows("model", "embedding", 0, 1); }),
              AllOf(StartsWith("checkpoint.part: "), HasSubstr("host1/model.safetensors"),
                    HasSubstr("part 2 of 2"), HasSubstr("merge the parts")));
  EXPECT_THAT(error_of([&] { load_checkpoint(scratch / "host0"); }),
              StartsWith("checkpoint.part: "));
}

TEST(MergeCheckpoints, GivesTheFilesOfASaveToOneDisk) {
  const Scratch scratch;
  const auto said = run_world(4, [&](int64_t rank, const fs::path&) {
    const auto group = connect();
    return error_of([&] { save_together(scratch / "whole", in_quarters(rank), group); });
  });
  EXPECT_THAT(said, Each("no error"));
  save_on_two_hosts(scratch, [](int64_t rank) { return in_quarters(rank); });
  merge_checkpoints({scratch / "host1", scratch / "host0"}, scratch / "merged");
  EXPECT_EQ(other_files(scratch / "whole", scratch / "merged"), "");
  EXPECT_EQ(difference(held_by_all(3, 0), load_checkpoint(scratch / "merged")), "");
}

TEST(MergeCheckpoints, RefusesWhatDoesNotBelongTogether) {
  const Scratch scratch;
  save_on_two_hosts(scratch, [](int64_t rank) { return in_quarters(rank); });
  save_on_two_hosts(scratch, [](int64_t rank) { return in_quarters(rank, 4); }, "later");
  levin::save_checkpoint(scratch / "c", sample(1));
  const auto merged = [&](const std::vector<fs::path>& parts) {
    return error_of([&] { merge_checkpoints(parts, scratch / "merged"); });
  };
  EXPECT_THAT(merged({scratch / "host0", scratch / "later1"}),
              AllOf(StartsWith("checkpoint.part: "), HasSubstr("parts of different saves")));
  EXPECT_THAT(merged({scratch / "host0"}),
              AllOf(StartsWith("checkpoint.part: none of the 1 folders has the bytes"),
                    HasSubstr("give the folders of all 2 hosts")));
  EXPECT_THAT(merged({scratch / "c"}), HasSubstr("is a full checkpoint, not a part of one"));
  EXPECT_THAT(merged({}), HasSubstr("got no folder to merge"));
  std::string bytes = get(scratch / "host1/model.safetensors");
  bytes[bytes.size() - 2000] = static_cast<char>(bytes[bytes.size() - 2000] ^ 1);
  levin::test::put(scratch / "host1/model.safetensors", bytes);
  EXPECT_THAT(merged({scratch / "host0", scratch / "host1"}), StartsWith("checkpoint.corrupt: "));
  EXPECT_FALSE(fs::exists(scratch / "merged"));
}

}  // namespace
