// What a ModelCheckpoint writes where, and what it may remove: nothing that it has not written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/killed_at.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace checkpoint_files {
namespace {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using levin::test::get;
using levin::test::put;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Logs a given value at each validation.
struct Scored : Net {
  std::vector<double> scores;
  explicit Scored(std::vector<double> scores) : scores(std::move(scores)) {}
  void validation_step(const levin::Batch&, int64_t) override {
    log("score", scores.at(static_cast<size_t>(current_epoch()) % scores.size()));
  }
};

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const std::string& name : levin::test::names_in(folder)) names.push_back(name);
  return names;
}

/// Trains to so many epochs of 5 steps, from a checkpoint or from the start.
void fit(const std::string& root, std::vector<std::shared_ptr<levin::Callback>> callbacks,
         int64_t epochs, const std::string& from = "", std::vector<double> scores = {1.0}) {
  auto options = quiet(root);
  options.callbacks = std::move(callbacks);
  options.max_epochs = epochs;
  options.ckpt_path = from;
  levin::Trainer(options).fit(std::make_shared<Scored>(std::move(scores)),
                              levin::DataLoader(dataset(40), {.batch_size = 8}),
                              levin::DataLoader(dataset(8), {.batch_size = 8}));
}

int64_t step_in(const fs::path& folder) {
  return levin::load_checkpoint(folder).training.child("progress").integer("global_step");
}

/// Makes a checkpoint's callbacks say something else.
void forge(const fs::path& folder, const std::function<void(levin::State& kept)>& change) {
  levin::Checkpoint checkpoint = levin::load_checkpoint(folder);
  levin::State callbacks = checkpoint.training.child("callbacks");
  levin::State own = callbacks.child("model_checkpoint");
  levin::State kept = own.child("kept");
  change(kept);
  own.set("kept", kept);
  callbacks.set("model_checkpoint", own);
  checkpoint.training.set("callbacks", callbacks);
  levin::save_checkpoint(folder, checkpoint);
}

TEST(CheckpointFiles, ASecondRunIntoOneFolderReplacesNothing) {
  const Scratch root;
  fit(root.str(), {levin::model_checkpoint({})}, 2);
  const std::string first = get(root / "checkpoints/epoch=1-step=10/model.safetensors");
  auto second = levin::model_checkpoint({});
  fit(root.str(), {second}, 2);
  EXPECT_THAT(names_in(root / "checkpoints"),
              ElementsAre("epoch=1-step=10", "epoch=1-step=10-v1", "last"));
  EXPECT_EQ(get(root / "checkpoints/epoch=1-step=10/model.safetensors"), first);
  EXPECT_THAT(second->last_model_path(), HasSubstr("epoch=1-step=10-v1"));
  fit(root.str(), {levin::model_checkpoint({})}, 1);
  EXPECT_THAT(names_in(root / "checkpoints"),
              ElementsAre("epoch=0-step=5", "epoch=1-step=10", "epoch=1-step=10-v1", "last"));
}

TEST(CheckpointFiles, ASecondFitOfOneTrainerReplacesNothing) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 1;
  options.callbacks = {levin::model_checkpoint({})};
  levin::Trainer trainer(options);
  for (int i = 0; i < 3; ++i) {
    trainer.fit(std::make_shared<Net>(), levin::DataLoader(dataset(40), {.batch_size = 8}));
  }
  EXPECT_THAT(names_in(root / "checkpoints"),
              ElementsAre("epoch=0-step=5", "epoch=0-step=5-v1", "epoch=0-step=5-v2", "last"));
}

TEST(CheckpointFiles, ANameThatIsTakenByAnythingGetsAVersion) {
  const Scratch root;
  fs::create_directories(root / "checkpoints/epoch=0-step=5");
  put(root / "checkpoints/epoch=0-step=5/thesis.txt", "mine");
  put(root / "checkpoints/epoch=0-step=5-v1", "mine too");
  fit(root.str(), {levin::model_checkpoint({})}, 1);
  EXPECT_EQ(step_in(root / "checkpoints/epoch=0-step=5-v2"), 5);
  EXPECT_EQ(get(root / "checkpoints/epoch=0-step=5/thesis.txt"), "mine");
  EXPECT_EQ(get(root / "checkpoints/epoch=0-step=5-v1"), "mine too");
}

TEST(CheckpointFiles, TheSameRunGoesOnAndRemovesWhatItHasWritten) {
  const Scratch root;
  fit(root.str(), {levin::model_checkpoint({.monitor = "score"})}, 1, "", {1.0});
  EXPECT_THAT(names_in(root / "checkpoints"), ElementsAre("epoch=0-step=5", "last"));
  fit(root.str(), {levin::model_checkpoint({.monitor = "score"})}, 2, "last", {1.0, 0.5});
  EXPECT_THAT(names_in(root / "checkpoints"), ElementsAre("epoch=1-step=10", "last"));
  // Wherever the folder is by now.
  fs::rename(root / "checkpoints", root / "moved");
  fit(root.str(), {levin::model_checkpoint({.dirpath = root.str() + "/moved", .monitor = "score"})},
      3, root.str() + "/moved/last", {1.0, 0.5, 0.25});
  EXPECT_THAT(names_in(root / "moved"), ElementsAre("epoch=2-step=15", "last"));
}

TEST(CheckpointFiles, WhatWasResumedFromByItsNameStays) {
  const Scratch root;
  fit(root.str(), {levin::model_checkpoint({})}, 1);
  fit(root.str(), {levin::model_checkpoint({})}, 2, root.str() + "/checkpoints/epoch=0-step=5");
  EXPECT_THAT(names_in(root / "checkpoints"),
              ElementsAre("epoch=0-step=5", "epoch=1-step=10", "last"));
}

TEST(CheckpointFiles, ARunThatBranchesOffRemovesNothingOfTheOneItCameFrom) {
  const Scratch root;
  const auto all = levin::model_checkpoint({.save_top_k = -1});
  fit(root.str(), {all}, 3);
  // From the second of three, with a smaller number to keep: all of the first run's stay.
  fit(root.str(), {levin::model_checkpoint({})}, 4, root.str() + "/checkpoints/epoch=1-step=10");
  EXPECT_THAT(names_in(root / "checkpoints"),
              ElementsAre("epoch=0-step=5", "epoch=1-step=10", "epoch=2-step=15", "epoch=3-step=20",
                          "last"));
}

TEST(CheckpointFiles, ARunFromAnothersFolderLeavesThatAlone) {
  const Scratch root;
  fit(root.str() + "/a", {levin::model_checkpoint({})}, 1);
  fit(root.str() + "/b", {levin::model_checkpoint({})}, 3, root.str() + "/a/checkpoints/last");
  EXPECT_THAT(names_in(root / "a/checkpoints"), ElementsAre("epoch=0-step=5", "last"));
  EXPECT_THAT(names_in(root / "b/checkpoints"), ElementsAre("epoch=2-step=15", "last"));
}

TEST(CheckpointFiles, WhatACheckpointClaimsIsRemovedNowhereElse) {
  const Scratch root;
  fit(root.str(), {levin::model_checkpoint({})}, 1);
  const fs::path last = fs::canonical(root / "checkpoints/last");
  levin::save_checkpoint(root / "elsewhere/precious", levin::load_checkpoint(last));
  levin::save_checkpoint(root / "sibling", levin::load_checkpoint(last));
  fs::create_directories(root / "checkpoints/thesis");
  put(root / "checkpoints/thesis/chapter1.txt", "mine");
  fs::create_directory_symlink(root / "elsewhere/precious", root / "checkpoints/link");
  const std::vector<std::string> claimed = {
      (root / "elsewhere/precious").string(),
      (root / "checkpoints/../sibling").string(),
      (root / "checkpoints/..").string(),
      (root / "checkpoints/.").string(),
      (root / "checkpoints/").string(),
      (root / "checkpoints/thesis").string(),
      (root / "checkpoints/link").string(),
      (root / "checkpoints/last").string(),
      "..",
      "/",
      "",
      std::string(5000, 'x'),
  };
  forge(last, [&](levin::State& kept) {
    for (size_t i = 0; i < claimed.size(); ++i) {
      levin::State one;
      one.set("folder", claimed[i]).set("step", int64_t{1}).set("by_rule", true).set("own", true);
      kept.set("1" + std::to_string(i), one);
    }
  });
  fit(root.str(), {levin::model_checkpoint({})}, 3, "last");
  EXPECT_EQ(step_in(root / "elsewhere/precious"), 5);
  EXPECT_EQ(step_in(root / "sibling"), 5);
  EXPECT_EQ(get(root / "checkpoints/thesis/chapter1.txt"), "mine");
  EXPECT_THAT(names_in(root / "checkpoints"),
              ElementsAre("epoch=2-step=15", "last", "link", "thesis"));
  EXPECT_THAT(names_in(root.path()), ElementsAre("checkpoints", "elsewhere", "sibling"));
}

TEST(CheckpointFiles, NotesInACheckpointOutliveIt) {
  const Scratch root;
  fit(root.str(), {levin::model_checkpoint({})}, 1);
  put(root / "checkpoints/epoch=0-step=5/notes.txt", "a good run");
  fit(root.str(), {levin::model_checkpoint({})}, 2, "last");
  EXPECT_THAT(names_in(root / "checkpoints/epoch=0-step=5"), ElementsAre("notes.txt"));
}

TEST(CheckpointFiles, SeveralOfOneMonitorEachKeepTheirOwn) {
  const Scratch root;
  const std::vector<double> scores = {0.5, 0.9, 0.1, 0.7};
  const auto callbacks = [] {
    return std::vector<std::shared_ptr<levin::Callback>>{
        levin::model_checkpoint({.monitor = "score", .save_last = false, .mode = "min"}),
        levin::model_checkpoint({.monitor = "score", .save_last = false, .mode = "max"})};
  };
  const auto best_steps = [](const std::vector<std::shared_ptr<levin::Callback>>& list) {
    std::vector<int64_t> steps;
    for (const auto& one : list) {
      steps.push_back(step_in(dynamic_cast<levin::ModelCheckpoint&>(*one).best_model_path()));
    }
    return steps;
  };
  const auto first = callbacks();
  fit(root.str(), first, 3, "", scores);
  EXPECT_THAT(best_steps(first), ElementsAre(15, 10));
  const auto second = callbacks();
  fit(root.str(), second, 4, "last", scores);
  EXPECT_THAT(best_steps(second), ElementsAre(15, 10));
  EXPECT_THAT(names_in(root / "checkpoints"),
              ElementsAre("epoch=1-step=10", "epoch=2-step=15", "last"));
}

TEST(CheckpointFiles, OneGivenTwiceIsAnError) {
  const auto one = levin::model_checkpoint({});
  const Scratch root;
  EXPECT_THAT(error_of([&] { fit(root.str(), {one, one}, 1); }),
              HasSubstr("trainer.callbacks: got the callback 'model_checkpoint' twice"));
}

TEST(CheckpointFiles, TwoInOneFolderNeverRemoveEachOthers) {
  const Scratch root;
  const auto best = levin::model_checkpoint({.monitor = "score", .save_last = false});
  const auto steps = levin::model_checkpoint({.save_last = false, .every_n_train_steps = 5});
  const auto some = levin::model_checkpoint({.save_last = false, .every_n_train_steps = 2});
  for (int run = 0; run < 2; ++run) {
    fit(root.str(), {best, steps, some}, 3 + run, run == 0 ? "" : "last", {0.1, 0.5, 0.4, 0.3});
    EXPECT_EQ(step_in(best->best_model_path()), 5);
    EXPECT_EQ(step_in(steps->best_model_path()), 15 + 5 * run);
    EXPECT_EQ(step_in(some->best_model_path()), 14 + 6 * run);
    EXPECT_EQ(names_in(root / "checkpoints").size(), 4U);
  }
}

// ---- Names and monitors

TEST(CheckpointFiles, AMonitorThatIsNotThereYetIsAWarning) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 2;
  options.check_val_every_n_epoch = 2;
  const auto checkpoint = levin::model_checkpoint({.filename = "{epoch}-{score:.2f}",
                                                   .monitor = "score",
                                                   .save_top_k = 2,
                                                   .save_on_train_epoch_end = true});
  options.callbacks = {checkpoint};
  ::testing::internal::CaptureStderr();
  levin::Trainer(options).fit(std::make_shared<Scored>(std::vector<double>{0.5}),
                              levin::DataLoader(dataset(40), {.batch_size = 8}),
                              levin::DataLoader(dataset(8), {.batch_size = 8}));
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("nothing named 'score' was logged by step 5, so this checkpoint is not ranked"));
  EXPECT_THAT(names_in(root / "checkpoints"), ElementsAre("epoch=1-score=0.50", "last"));
  EXPECT_EQ(checkpoint->best_model_score(), 0.5);
}

TEST(CheckpointFiles, WithoutValidationItIsAWarningAndTheNewestIsKept) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 2;
  const auto checkpoint =
      levin::model_checkpoint({.filename = "{epoch}-{score:.2f}", .monitor = "score"});
  options.callbacks = {checkpoint};
  levin::Trainer(options).fit(std::make_shared<Net>(),
                              levin::DataLoader(dataset(40), {.batch_size = 8}));
  EXPECT_THAT(names_in(root / "checkpoints"), ElementsAre("epoch=1-score=nan", "last"));
  EXPECT_EQ(checkpoint->best_model_path(), "");
}

TEST(CheckpointFiles, AMonitorThatAValidationHasNotLoggedIsAnError) {
  const Scratch root;
  EXPECT_THAT(error_of([&] { fit(root.str(), {levin::model_checkpoint({.monitor = "scor"})}, 2); }),
              AllOf(HasSubstr("trainer.monitor: nothing named 'scor' was logged"),
                    HasSubstr("did you mean 'score'?")));
}

// ---- Deaths

/// Its checkpoints and what trained them, to be compared.
std::string outcome_of(const Scratch& root) {
  std::string text;
  for (const std::string& name : names_in(root / "checkpoints")) text += name + " ";
  return text + std::to_string(step_in(root / "checkpoints/last"));
}

// Between any two of its steps on the disk: the run goes on, ends as one that lived, and leaves
// nothing behind; but for its first checkpoint, where it dies before a link says that it is one.
TEST(CheckpointFiles, ARunThatIsKilledAnywhereGoesOnAndCleansUp) {
  const auto train = [](const Scratch& root) {
    at::set_num_threads(1);
    fit(root.str(), {levin::model_checkpoint({.every_n_train_steps = 4})}, 2, "last");
    return 0;
  };
  const Scratch undisturbed;
  ASSERT_EQ(levin::test::run_child([&] { return train(undisturbed); }), 0);
  const std::string wanted = outcome_of(undisturbed);
  EXPECT_EQ(wanted, "epoch=1-step=10 epoch=1-step=8 last 10");
  for (int64_t call = 1;; ++call) {
    const Scratch root;
    fs::create_directories(root / "checkpoints");
    const levin::test::End end = levin::test::killed_at(call, [&] { return train(root); });
    if (end == levin::test::End::kCannotTrace) GTEST_SKIP() << "ptrace is not permitted here";
    ASSERT_NE(end, levin::test::End::kFailed) << call;
    const bool is_first = !fs::exists(root / "checkpoints/last");
    ASSERT_EQ(levin::test::run_child([&] { return train(root); }), 0) << call;
    const std::string outcome = outcome_of(root);
    if (!is_first || outcome != "epoch=0-step=4 " + wanted) {
      EXPECT_EQ(outcome, wanted) << "killed before call " << call;
    }
    if (end == levin::test::End::kEnded) {
      EXPECT_GT(call, 10);
      return;
    }
  }
}

// ---- Ranks

/// What each of two ranks says of a run whose part on rank 0 throws.
std::vector<std::string> words_of(const std::function<void(levin::TrainerOptions&)>& set,
                                  const std::function<std::shared_ptr<Net>()>& make) {
  return levin::test::run_world(2, [&](int64_t, const fs::path& folder) -> std::string {
    auto options = quiet(folder.string());
    options.max_epochs = 1;
    options.engine.comm.timeout_s = levin::test::patient_s(30);
    set(options);
    try {
      levin::Trainer trainer(options);
      trainer.fit(make(), levin::DataLoader(dataset(40), {.batch_size = 8}));
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  });
}

/// Throws what is no Error of levin's when it is saved on rank 0.
struct Throwing : levin::Callback {
  std::string state_key() const override { return "throwing"; }
  void on_save_checkpoint(levin::Trainer& trainer, levin::Module&, levin::State&) override {
    if (trainer.accelerator().is_main_process()) throw std::runtime_error("my hook broke");
  }
};

TEST(CheckpointRanks, WhatAHookThrowsOnOneIsAnErrorOnAll) {
  EXPECT_THAT(words_of([](auto& options) { options.callbacks = {std::make_shared<Throwing>()}; },
                       [] { return std::make_shared<Net>(); }),
              Each(AllOf(HasSubstr("trainer.checkpoint: step 3 could not be saved"),
                         HasSubstr("accelerator.process_failed: on rank 0: my hook broke"))));
}

TEST(CheckpointRanks, ALinkThatCannotBeMadeIsAnErrorOnAll) {
  EXPECT_THAT(words_of(
                  [](auto& options) {
                    fs::create_directories(fs::path(options.default_root_dir) / "checkpoints/last");
                  },
                  [] { return std::make_shared<Net>(); }),
              Each(HasSubstr("a file or folder exists at that path; move it away")));
}

TEST(CheckpointRanks, ACheckpointThatCannotBeFoundIsAnErrorOnAll) {
  EXPECT_THAT(words_of([](auto& options) { options.ckpt_path = "no/such/checkpoint"; },
                       [] { return std::make_shared<Net>(); }),
              Each(HasSubstr("checkpoint.missing: on rank 0: the checkpoint folder "
                             "'no/such/checkpoint' does not exist")));
}

// Two hosts, which are two working folders here.
TEST(ModelCheckpointFiles, EachHostKeepsItsOwnWhereTheyShareNoDisk) {
  for (const bool async_save : {false, true}) {
    const Scratch scratch;
    fs::create_directories(scratch / "1/ckpt/epoch=2-step=9");  // somebody's, on one host
    put(scratch / "1/ckpt/epoch=2-step=9/notes", "mine");
    const auto words = levin::test::run_world(2, [&](int64_t rank, const fs::path&) {
      ::setenv("LOCAL_RANK", "0", 1);
      ::setenv("LOCAL_WORLD_SIZE", "1", 1);
      const fs::path host = scratch / std::to_string(rank);
      fs::create_directories(host);
      fs::current_path(host);
      return error_of([&] {
        fit(".",
            {levin::model_checkpoint({.dirpath = "ckpt",
                                      .save_top_k = 2,
                                      .async_save = async_save,
                                      .save_on_each_node = true})},
            4);
      });
    });
    EXPECT_THAT(words, Each("no error"));
    EXPECT_THAT(names_in(scratch / "0/ckpt"),
                ElementsAre("epoch=2-step=9-v1", "epoch=3-step=12", "last"));
    for (const char* host : {"0", "1"}) {
      EXPECT_EQ(fs::read_symlink(scratch / host / "ckpt/last").filename(), "epoch=3-step=12");
      EXPECT_EQ(step_in(scratch / host / "ckpt/last"), 12);
    }
    EXPECT_EQ(get(scratch / "1/ckpt/epoch=2-step=9/notes"), "mine");
  }
}

}  // namespace
}  // namespace checkpoint_files
