// model_checkpoint({.async_save = true}): the checkpoints, the ranking and the link of a run that
// waits for each save, whenever they are written; and what a save that fails is told as.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/file_limit.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace async_checkpoint {
namespace {

using namespace small_run;  // NOLINT
using levin::test::get;
using levin::test::names_in;
using levin::test::run_world;
using levin::test::told_by;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Two epochs of 40 samples; saves every three steps, keeps three.
levin::TrainerOptions every_three_steps(const fs::path& root, bool async_save,
                                        const std::string& monitor = "") {
  auto options = quiet(root.string());
  options.seed = 3;
  options.max_epochs = 2;
  options.callbacks = {levin::model_checkpoint({.dirpath = (root / "ckpt").string(),
                                                .monitor = monitor,
                                                .save_top_k = 3,
                                                .every_n_train_steps = 3,
                                                .async_save = async_save})};
  return options;
}

void fit(const levin::TrainerOptions& options, int64_t ranks) {
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Net>(),
              levin::DataLoader(dataset(40), {.batch_size = 4 / ranks, .shuffle = true}));
}

/// What a run leaves: names, the weights of each, and where `last` leads.
std::map<std::string, std::string> left_by(int64_t ranks, bool async_save) {
  const Scratch root;
  const auto words = run_world(ranks, [&](int64_t, const fs::path&) {
    return told_by([&] { fit(every_three_steps(root.path(), async_save, "loss"), ranks); });
  });
  EXPECT_THAT(words, Each("no error"));
  std::map<std::string, std::string> left;
  for (const std::string& name : names_in(root / "ckpt")) {
    left[name] = get(root / "ckpt" / name / "model.safetensors");
  }
  left["last leads to"] = fs::read_symlink(root / "ckpt/last").string();
  return left;
}

TEST(AsyncCheckpoint, LeavesWhatARunThatWaitsLeaves) {
  for (const int64_t ranks : {1, 2}) {
    const auto wanted = left_by(ranks, false);
    EXPECT_GE(wanted.size(), 5u);
    EXPECT_EQ(left_by(ranks, true), wanted) << ranks << " ranks";
  }
}

/// Looks at the folder before each step.
struct Watch : levin::Callback {
  fs::path folder;
  bool linked_before_there = false;

  std::string state_key() const override { return "watch"; }
  void on_train_batch_start(levin::Trainer&, levin::Module&, const levin::Batch&,
                            int64_t) override {
    std::error_code none;
    const fs::path last = fs::read_symlink(folder / "last", none);
    if (!none && !fs::exists(folder / last / "manifest.json")) linked_before_there = true;
  }
};

/// Makes saves of one rank fail from step 8 on, when the one of step 6 is there.
struct FailSaves : levin::Callback {
  bool here = false;

  std::string state_key() const override { return "fail_saves"; }
  void on_train_batch_start(levin::Trainer& trainer, levin::Module&, const levin::Batch&,
                            int64_t) override {
    if (trainer.global_step() != 8) return;
    trainer.accelerator().finish_saves();
    if (here) levin::test::limit_files(800);
  }
};

TEST(AsyncCheckpoint, LinksNothingThatIsNotThere) {
  const Scratch root;
  auto options = every_three_steps(root.path(), true);
  auto watch = std::make_shared<Watch>();
  watch->folder = root / "ckpt";
  options.callbacks.push_back(watch);
  fit(options, 1);
  EXPECT_FALSE(watch->linked_before_there);
  EXPECT_EQ(fs::read_symlink(root / "ckpt/last").string(), "epoch=1-step=20");
  for (const std::string& name : names_in(root / "ckpt")) {
    EXPECT_TRUE(levin::is_checkpoint(root / "ckpt" / name)) << name;
  }
}

TEST(AsyncCheckpoint, ASaveThatFailsOnOneRankEndsTheRunOnAllAndNamesTheOneBefore) {
  for (const int64_t failing : {0, 1}) {
    const Scratch root;
    const auto words = run_world(2, [&](int64_t rank, const fs::path&) {
      auto options = every_three_steps(root.path(), true);
      auto fails = std::make_shared<FailSaves>();
      fails->here = rank == failing;
      options.callbacks.push_back(fails);
      return told_by([&] { fit(options, 2); });
    });
    EXPECT_THAT(words, Each(words.front()));
    EXPECT_THAT(words.front(),
                AllOf(StartsWith("trainer.checkpoint: step 9 could not be saved"),
                      HasSubstr(fmt::format("on rank {}: ", failing)), HasSubstr("file too large"),
                      HasSubstr("resume with --ckpt-path " + (root / "ckpt").string() +
                                "/epoch=0-step=6")));
    EXPECT_EQ(fs::read_symlink(root / "ckpt/last").string(), "epoch=0-step=6");
    EXPECT_EQ(levin::load_checkpoint(root / "ckpt/last")
                  .training.child("progress")
                  .integer("global_step"),
              6);
    EXPECT_THAT(names_in(root / "ckpt"),
                ::testing::ElementsAre("epoch=0-step=3", "epoch=0-step=6", "last"));
  }
}

struct Boom : levin::Callback {
  std::string state_key() const override { return "boom"; }
  void on_train_batch_start(levin::Trainer& trainer, levin::Module&, const levin::Batch&,
                            int64_t) override {
    if (trainer.global_step() == 7) throw std::runtime_error("boom");
  }
};

TEST(AsyncCheckpoint, ARunThatFailsKeepsWhatWasUnderWay) {
  const Scratch root;
  auto options = every_three_steps(root.path(), true);
  options.callbacks.push_back(std::make_shared<Boom>());
  EXPECT_THROW(fit(options, 1), std::runtime_error);
  EXPECT_EQ(fs::read_symlink(root / "ckpt/last").string(), "epoch=0-step=7");
  EXPECT_THAT(names_in(root / "ckpt"), Contains("epoch=0-step=6"));
}

}  // namespace
}  // namespace async_checkpoint
