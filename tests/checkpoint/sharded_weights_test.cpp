// Weights in several files: what a second save leaves, removes, and never mixes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "tests/checkpoint/on_disk.h"
#include "tests/support/error_of.h"
#include "tests/support/killed_at.h"

namespace {

namespace fs = std::filesystem;
using levin::load_sharded_weights;
using levin::save_sharded_weights;
using levin::State;
using levin::test::difference;
using levin::test::error_of;
using levin::test::get;
using levin::test::names_in;
using levin::test::put;
using levin::test::Scratch;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kBytes = 64;

/// As many tensors of 64 bytes, each full of that value.
State weights_of(int64_t tensors, double value) {
  State weights;
  for (int64_t i = 0; i < tensors; ++i) {
    weights.set("w" + std::to_string(i), torch::full({kBytes / 4}, value));
  }
  return weights;
}

TEST(ShardedWeights, RemoveFilesOfExactlyTheirNames) {
  const Scratch scratch;
  const std::vector<std::string> others = {
      "config.json",
      "model-00001-of-00002.safetensors.bak",
      "model-1-of-2.safetensors",
      "model-best.safetensors",
      "model-ema-00001-of-00002.safetensors",
      "model-00001-of-00002.safetensors.index.json",
      "mymodel-00001-of-00002.safetensors",
  };
  for (const std::string& name : others) put(scratch / name, "mine");
  save_sharded_weights(scratch.path(), weights_of(4, 1), kBytes);
  save_sharded_weights(scratch.path(), weights_of(2, 2), kBytes);
  save_sharded_weights(scratch.path(), weights_of(2, 3), 10 * kBytes);
  for (const std::string& name : others) EXPECT_EQ(get(scratch / name), "mine") << name;
  EXPECT_EQ(names_in(scratch.path()).size(), others.size() + 1);
  EXPECT_EQ(difference(weights_of(2, 3), load_sharded_weights(scratch.path())), "");
  EXPECT_EQ(difference(weights_of(2, 3), levin::load_weights(scratch.path())), "");
}

struct Change {
  std::string name;
  int64_t before, before_bytes;  // tensors, and bytes of a file
  int64_t after, after_bytes;
};

class KilledBetween : public ::testing::TestWithParam<Change> {};

// The one, the other or none; and from a second save that comes through, the new one alone.
TEST_P(KilledBetween, TheStepsOfASecondSaveNothingMixedIsLoaded) {
  const Change& change = GetParam();
  const State before = weights_of(change.before, 1), after = weights_of(change.after, 2);
  for (int64_t call = 1;; ++call) {
    const Scratch scratch;
    put(scratch / "config.json", "mine");
    save_sharded_weights(scratch.path(), before, change.before_bytes);
    const levin::test::End end = levin::test::killed_at(call, [&] {
      at::set_num_threads(1);
      save_sharded_weights(scratch.path(), after, change.after_bytes);
      return 0;
    });
    if (end == levin::test::End::kCannotTrace) GTEST_SKIP() << "ptrace is not permitted here";
    ASSERT_NE(end, levin::test::End::kFailed);
    State loaded;
    const std::string error = error_of([&] { loaded = load_sharded_weights(scratch.path()); });
    if (error == "no error") {
      EXPECT_TRUE(difference(before, loaded).empty() || difference(after, loaded).empty()) << call;
    } else {
      EXPECT_THAT(error, StartsWith("checkpoint.missing: ")) << call;
    }
    save_sharded_weights(scratch.path(), after, change.after_bytes);
    EXPECT_EQ(difference(after, load_sharded_weights(scratch.path())), "") << call;
    EXPECT_EQ(get(scratch / "config.json"), "mine");
    if (end == levin::test::End::kEnded) {
      EXPECT_GT(call, 2);  // it was killed somewhere
      return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Saves, KilledBetween,
                         ::testing::Values(Change{"SameNames", 3, kBytes, 3, kBytes},
                                           Change{"MoreFiles", 2, kBytes, 3, kBytes},
                                           Change{"FewerFiles", 3, kBytes, 2, kBytes},
                                           Change{"OneToSeveral", 2, 1000, 2, kBytes},
                                           Change{"SeveralToOne", 2, kBytes, 2, 1000},
                                           Change{"OneToOne", 2, 1000, 2, 1000}),
                         [](const auto& info) { return info.param.name; });

TEST(ShardedWeights, ASaveThatFailsLeavesTheOneBefore) {
  const Scratch scratch;
  save_sharded_weights(scratch.path(), weights_of(3, 1), kBytes);
  State wrong = weights_of(3, 2);
  wrong.set("w2", torch::eye(2).to_sparse());
  EXPECT_THAT(error_of([&] { save_sharded_weights(scratch.path(), wrong, kBytes); }),
              StartsWith("checkpoint.dtype: "));
  EXPECT_EQ(difference(weights_of(3, 1), load_sharded_weights(scratch.path())), "");
  EXPECT_EQ(names_in(scratch.path()).size(), 4u);
}

TEST(ShardedWeights, AnIndexNamesFilesOfItsFolderAlone) {
  const Scratch scratch;
  levin::save_weights(scratch / "outside.safetensors", weights_of(1, 1));
  levin::save_checkpoint(scratch / "c", {.weights = {{"model", weights_of(1, 1)}}});
  fs::create_directory(scratch / "c/model");
  for (const std::string& name :
       {std::string(".."), std::string("."), std::string(""), std::string("../outside.safetensors"),
        (scratch / "outside.safetensors").string()}) {
    put(scratch / "c/model/model.safetensors.index.json",
        nlohmann::json{{"weight_map", {{"w0", name}}}}.dump());
    EXPECT_THAT(error_of([&] { load_sharded_weights(scratch / "c/model"); }),
                HasSubstr("names no file of its folder for w0"))
        << name;
  }
  std::string nested;
  for (int i = 0; i < 30'000; ++i) nested += R"({"weight_map":)";
  put(scratch / "c/model/model.safetensors.index.json", nested);
  EXPECT_THAT(error_of([&] { load_sharded_weights(scratch / "c/model"); }),
              StartsWith("checkpoint.corrupt: "));
}

TEST(ShardedWeights, MayBeLinksAsInHuggingFacesCache) {
  const Scratch scratch;
  fs::create_directories(scratch / "blobs");
  fs::create_directories(scratch / "snapshot");
  save_sharded_weights(scratch / "blobs", weights_of(2, 1), kBytes);
  for (const std::string& name : names_in(scratch / "blobs")) {
    fs::create_symlink("../blobs/" + name, scratch / "snapshot" / name);
  }
  EXPECT_EQ(difference(weights_of(2, 1), load_sharded_weights(scratch / "snapshot")), "");
}

}  // namespace
