#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "tests/checkpoint/by_ranks.h"
#include "tests/support/error_of.h"

namespace {

using levin::CheckpointReader;
using levin::State;
using levin::test::error_of;
using levin::test::get;
using levin::test::held_by_all;
using levin::test::kPieceFloats;
using levin::test::same_bits;
using levin::test::sample;
using levin::test::Scratch;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CheckpointReader, GivesTensorsAndRowsOfThem) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", held_by_all(3, 0), {.max_shard_bytes = 1000});
  CheckpointReader reader(scratch / "c");
  const State wanted = held_by_all(3, 0).weights.at("model");
  EXPECT_THAT(reader.models(), ElementsAre("model"));
  EXPECT_THAT(reader.names("model"), ElementsAre("conv", "embedding", "empty", "half", "scalar"));
  EXPECT_EQ(reader.sizes("model", "conv"), (std::vector<int64_t>{2, 3, 2, 4}));
  for (const auto& [name, value] : wanted.values()) {
    EXPECT_TRUE(same_bits(reader.tensor("model", name), wanted.tensor(name))) << name;
  }
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 7}, {2, 5}, {3, 3}, {7, 7}}) {
    EXPECT_TRUE(same_bits(reader.rows("model", "half", begin, end),
                          wanted.tensor("half").narrow(0, begin, end - begin)));
  }
  EXPECT_TRUE(same_bits(reader.rows("model", "empty", 0, 0), wanted.tensor("empty")));
}

TEST(CheckpointReader, ReadsOfAHalfAHalf) {
  const Scratch scratch;
  levin::Checkpoint checkpoint;
  const at::Tensor large = torch::arange(2 * kPieceFloats, torch::kFloat).view({-1, 1024});
  checkpoint.weights["model"].set("w", large).set("b", torch::ones({1024}));
  State moments;
  moments.set("exp_avg", large + 1);
  checkpoint.training.set("optimizer", moments);
  levin::save_checkpoint(scratch / "c", checkpoint);
  const auto bytes = static_cast<double>(2 * large.nbytes());
  const int64_t rows = large.size(0);
  const levin::WantedRows half = [&](std::string_view, const std::vector<int64_t>& sizes) {
    return sizes.size() == 2 ? std::optional(levin::RowRange{rows / 2, rows}) : std::nullopt;
  };
  CheckpointReader reader(scratch / "c");
  const State weights = reader.weights("model", half);
  const State training = reader.training(half);
  EXPECT_LE(static_cast<double>(reader.bytes_read()), 0.55 * bytes);
  EXPECT_GE(static_cast<double>(reader.bytes_read()), 0.5 * bytes);
  EXPECT_EQ(weights.slice("w").sizes, large.sizes().vec());
  EXPECT_EQ(weights.slice("w").offsets, (std::vector<int64_t>{rows / 2, 0}));
  EXPECT_TRUE(same_bits(weights.slice("w").local, large.narrow(0, rows / 2, rows / 2)));
  EXPECT_TRUE(same_bits(weights.tensor("b"), torch::ones({1024})));
  EXPECT_TRUE(same_bits(training.child("optimizer").slice("exp_avg").local,
                        large.narrow(0, rows / 2, rows / 2) + 1));
  const int64_t read = reader.bytes_read();
  reader.weights("model", half);
  EXPECT_EQ(reader.bytes_read(), read);  // each piece once
  reader.check_all();
  EXPECT_GT(static_cast<double>(reader.bytes_read()), bytes);
}

TEST(CheckpointReader, FindsDamageInWhatItTouchesAlone) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", held_by_all(3, 0));
  std::string bytes = get(scratch / "c/model.safetensors");
  bytes[bytes.size() - 200] = static_cast<char>(bytes[bytes.size() - 200] ^ 1);  // of the last rows
  levin::test::put(scratch / "c/model.safetensors", bytes);
  CheckpointReader reader(scratch / "c");
  const at::Tensor first = reader.rows("model", "embedding", 0, 1000);
  EXPECT_TRUE(same_bits(first, torch::arange(1000, torch::kFloat) + 3));
  EXPECT_THAT(error_of([&] { reader.tensor("model", "embedding"); }),
              AllOf(StartsWith("checkpoint.corrupt: "), HasSubstr("c/model.safetensors"),
                    HasSubstr("its bytes differ from the saved ones")));
  EXPECT_THAT(error_of([&] { levin::load_checkpoint(scratch / "c"); }),
              StartsWith("checkpoint.corrupt: "));
}

TEST(CheckpointReader, NamesWhatIsNotThere) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", sample(3));
  CheckpointReader reader(scratch / "c");
  EXPECT_THAT(
      error_of([&] { reader.weights("other"); }),
      AllOf(StartsWith("checkpoint.weights: "), HasSubstr("wanted one of [model, model_1]")));
  EXPECT_THAT(error_of([&] { reader.tensor("model", "nothing"); }),
              HasSubstr("hold no tensor 'nothing'"));
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{-1, 2}, {0, 3}, {2, 1}}) {
    EXPECT_THAT(error_of([&] { reader.rows("model", "net.weight", begin, end); }),
                AllOf(StartsWith("checkpoint.rows: "), HasSubstr("which has the sizes [2, 3]")));
  }
}

TEST(CheckpointReader, GivesTheTrainingStateWithoutItsTensors) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", held_by_all(3, 0));
  CheckpointReader reader(scratch / "c");
  const State scalars = reader.training_scalars();
  EXPECT_EQ(scalars.child("optimizer").integer("step"), 3);
  EXPECT_FALSE(scalars.child("optimizer").contains("exp_avg"));
  EXPECT_EQ(reader.bytes_read(),
            static_cast<int64_t>(get(scratch / "c/training_state.json").size()));
}

}  // namespace
