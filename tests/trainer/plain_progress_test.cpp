// What a run tells where stderr is no terminal: a line a minute, of training and of evaluations.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT

/// Whose steps take 40 s of a clock of the test's own.
struct Slow : Net {
  std::chrono::steady_clock::time_point& clock;
  explicit Slow(std::chrono::steady_clock::time_point& clock) : clock(clock) {}
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    clock += std::chrono::seconds(40);
    log("loss", 0.5, {.prog_bar = true});
    return net->forward(batch["x"]).square().mean();
  }
  void validation_step(const levin::Batch&, int64_t) override { clock += std::chrono::seconds(70); }
  void test_step(const levin::Batch&, int64_t) override { clock += std::chrono::seconds(40); }
};

TEST(PlainProgress, IsALineAMinuteOfTrainingAndOfEvaluations) {
  const Scratch root;
  std::chrono::steady_clock::time_point clock;
  const int file = ::open((root / "said").c_str(), O_WRONLY | O_CREAT, 0600);
  auto options = quiet(root.str());
  options.max_epochs = 1;
  options.num_sanity_val_steps = 0;
  options.log_every_n_steps = 1;
  options.callbacks = {levin::progress_bar({.fd = file, .now = [&] { return clock; }})};
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Slow>(clock);
  const levin::DataLoader training(dataset(32), {.batch_size = 8}),
      two(dataset(16), {.batch_size = 8});
  trainer.fit(net, training, two);
  trainer.test(net, two);
  ::close(file);
  EXPECT_EQ(levin::test::get(root / "said"),
            "epoch 1/1 2/4 40.00 s/it 1:20<1:20 loss=0.5\n"
            "epoch 1/1 4/4 40.00 s/it 2:40<0:00 loss=0.5\n"
            "epoch 1/1 validation 1/2 70.00 s/it 1:10<1:10\n"
            "epoch 1/1 validation 2/2 70.00 s/it 2:20<0:00\n"
            "epoch 1/1: loss=0.5\n"
            "test 2/2 40.00 s/it 1:20<0:00\n"
            "test:\n");
}

}  // namespace
