// SIGTERM and SIGINT: the step is finished, saved, and the program ends with 143 or 130.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>

#include "levin/checkpoint/checkpoint.h"
#include "tests/support/child_process.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT

/// Sends itself the signal in the middle of a step, `times` times.
struct Signalled : Net {
  int signal, times;
  Signalled(int signal, int times) : signal(signal), times(times) {}
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    if (global_step() == 2) {
      for (int i = 0; i < times; ++i) std::raise(signal);
    }
    return Net::training_step(batch, index);
  }
};

int exit_code_after(int signal, int times, const std::string& root) {
  return levin::test::run_child([&] {
    at::set_num_threads(1);
    auto options = quiet(root);
    options.exit_on_signal = true;
    options.max_epochs = 100;
    levin::Trainer(options).fit(
        std::make_shared<Signalled>(signal, times),
        levin::DataLoader(dataset(40), {.batch_size = 8, .num_workers = 1}));
    return 1;
  });
}

TEST(Signals, TermSavesTheStepAndExits143) {
  const Scratch root;
  EXPECT_EQ(exit_code_after(SIGTERM, 1, root.str()), 143);
  const auto training = levin::load_checkpoint(root.str() + "/checkpoints/last").training;
  EXPECT_EQ(training.child("progress").integer("global_step"), 3);
}

TEST(Signals, InterruptSavesTheStepAndExits130) {
  const Scratch root;
  EXPECT_EQ(exit_code_after(SIGINT, 1, root.str()), 130);
  EXPECT_TRUE(fs::exists(root.str() + "/checkpoints/last"));
}

TEST(Signals, ASecondInterruptStopsAtOnce) {
  const Scratch root;
  EXPECT_EQ(exit_code_after(SIGINT, 2, root.str()), 130);
  EXPECT_FALSE(fs::exists(root.str() + "/checkpoints/last"));
}

TEST(Signals, FitReturnsWhenAskedTo) {
  const Scratch root;
  levin::Trainer trainer(quiet(root.str()));
  trainer.fit(std::make_shared<Signalled>(SIGTERM, 1),
              levin::DataLoader(dataset(40), {.batch_size = 8}));
  EXPECT_EQ(trainer.interrupted(), SIGTERM);
  EXPECT_EQ(trainer.global_step(), 3);
}

/// Sends itself SIGTERM while its data is made, or while a checkpoint is loaded.
struct SignalledBefore : Net {
  bool loading;
  explicit SignalledBefore(bool loading) : loading(loading) {}
  void prepare_data() override {
    if (!loading) std::raise(SIGTERM);
  }
  void on_load_checkpoint(const levin::State&) override {
    if (loading) std::raise(SIGTERM);
  }
};

/// How a process ends that fits it: its code, or minus the signal.
int end_of(bool loading, bool exit_on_signal, const std::string& root) {
  return levin::test::run_child([&] {
    at::set_num_threads(1);
    auto options = quiet(root);
    options.exit_on_signal = exit_on_signal;
    levin::Trainer trainer(options);
    trainer.fit(std::make_shared<SignalledBefore>(loading),
                levin::DataLoader(dataset(40), {.batch_size = 8}), std::nullopt,
                {.ckpt_path = loading ? root + "/checkpoints/last" : ""});
    return trainer.interrupted() == SIGTERM ? 7 : 1;
  });
}

// There is nothing to save yet, and reading may take long.
TEST(Signals, TermEndsARunThatIsStillReading) {
  const Scratch root;
  levin::Trainer(quiet(root.str()))
      .fit(std::make_shared<Net>(), levin::DataLoader(dataset(40), {.batch_size = 8}));
  for (const bool loading : {false, true}) {
    EXPECT_EQ(end_of(loading, true, root.str()), -SIGTERM) << loading;
    EXPECT_EQ(end_of(loading, false, root.str()), 7) << loading;
  }
}

}  // namespace
