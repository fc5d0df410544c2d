// Several training loaders in a fit: a resumed run equals an undisturbed one, ranks equal one rank.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace combined_fit {

using namespace small_run;  // NOLINT
using levin::test::run_world;
using ::testing::Each;

/// Adds up the losses of the parts that a batch has.
struct Parts : Net {
  Parts() : Net(0.0) {}
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    at::Tensor loss;
    for (const char* part : {"a", "b"}) {
      if (!batch.has_part(part)) continue;
      const at::Tensor own = Net::training_step(batch.part(part));
      loss = loss.defined() ? loss + own : own;
    }
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

levin::DataLoader loaders(const std::string& mode, int64_t ranks) {
  return levin::data::combined(
      {{"a", {dataset(48, 1), {.batch_size = 8 / ranks, .shuffle = true}}},
       {"b", {dataset(24, 2), {.batch_size = 8 / ranks, .shuffle = true, .num_workers = 1}}}},
      {.mode = mode});
}

struct Stop : levin::Callback {
  int64_t step;
  explicit Stop(int64_t step) : step(step) {}
  std::string state_key() const override { return "stop"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.global_step() == step) trainer.request_stop("stopped");
  }
};

class CombinedFit : public ::testing::TestWithParam<const char*> {
 protected:
  /// Trains 2 epochs, or up to the step, and returns the number of steps.
  static int64_t train(const std::shared_ptr<Net>& net, const fs::path& root, int64_t stop_at,
                       const std::string& ckpt_path = "", bool dispatch = false) {
    auto options = quiet(root.string());
    options.seed = 3;
    options.max_epochs = 2;
    options.dispatch_batches = dispatch;
    options.engine.sync_batchnorm = true;
    options.callbacks = {levin::model_checkpoint({.dirpath = (root / "ckpt").string()}),
                         std::make_shared<Stop>(stop_at)};
    levin::Trainer trainer(options);
    const int64_t ranks = trainer.accelerator().num_processes();
    trainer.fit(net, loaders(GetParam(), ranks), std::nullopt, {.ckpt_path = ckpt_path});
    return trainer.global_step();
  }
  static std::shared_ptr<Net> net() {
    levin::seed_everything(3);
    return std::make_shared<Parts>();
  }
};

TEST_P(CombinedFit, ResumedInsideAnEpochEqualsAnUndisturbedRun) {
  const Scratch straight_root;
  const auto straight = net();
  const int64_t steps = train(straight, straight_root.path(), -1);
  const std::map<std::string, int64_t> wanted = {
      {"min_size", 6}, {"max_size_cycle", 12}, {"max_size", 12}, {"sequential", 18}};
  EXPECT_EQ(steps, wanted.at(GetParam()));
  for (const int64_t stop : {int64_t{1}, steps / 2 - 1, steps / 2 + 1}) {
    const Scratch root;
    EXPECT_EQ(train(net(), root.path(), stop), stop);
    const auto resumed = net();
    EXPECT_EQ(train(resumed, root.path(), -1, (root / "ckpt" / "last").string()), steps);
    expect_same_weights(*straight, *resumed);
  }
}

TEST_P(CombinedFit, TwoRanksEqualOne) {
  const Scratch alone;
  ASSERT_THAT(run_world(1,
                        [&](int64_t, const fs::path& folder) {
                          const auto one = net();
                          train(one, folder, -1);
                          levin::save_weights(alone / "one.safetensors", levin::module_state(*one));
                          return "";
                        }),
              Each(""));
  for (const bool dispatch : {false, true}) {
    EXPECT_THAT(run_world(2,
                          [&](int64_t rank, const fs::path& folder) {
                            const auto mine = net();
                            train(mine, folder, -1, "", dispatch);
                            const fs::path file = folder / fmt::format("{}.safetensors", rank);
                            levin::save_weights(file, levin::module_state(*mine));
                            return off_by(file, alone / "one.safetensors", 1e-5);
                          }),
                Each(""))
        << "dispatch " << dispatch;
  }
}

INSTANTIATE_TEST_SUITE_P(, CombinedFit,
                         ::testing::Values("min_size", "max_size_cycle", "max_size", "sequential"));

}  // namespace combined_fit
