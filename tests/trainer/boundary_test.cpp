// A run that ends by an exception is saved as it stood before what threw; resumed it equals one
// that nobody disturbed, bit for bit: weights, buffers, optimizer, loader, random generators and
// what was logged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <numeric>

#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/in_shards.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using levin::test::run_world;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

enum class Where {
  kNowhere,
  kAtStart,
  kInStep,
  kBeforeBackward,
  kBeforeUpdate,
  kInValidation,
  kInData
};

/// Throws once, late in what it throws in: after the forward pass, and after it has logged.
struct Failing : Net {
  Where where = Where::kNowhere;
  int64_t epoch = 1, batch = 0;
  std::vector<int64_t> validated_in;

  void fail_at(Where here, int64_t index) const {
    if (here == where && current_epoch() == epoch && index == batch) {
      throw std::runtime_error("a wire came loose");
    }
  }
  at::Tensor training_step(const levin::Batch& values, int64_t index) override {
    index_ = index;
    const at::Tensor loss = Net::training_step(values, index);
    fail_at(Where::kInStep, index);
    return loss;
  }
  bool on_train_batch_start(const levin::Batch&, int64_t index) override {
    at::rand({3});
    fail_at(Where::kAtStart, index);
    return true;
  }
  void on_before_backward(const at::Tensor&) override { fail_at(Where::kBeforeBackward, index_); }
  void on_before_optimizer_step(levin::OptimizerHandle&) override {
    fail_at(Where::kBeforeUpdate, index_);
  }
  void on_validation_epoch_start() override { at::rand({3}); }
  void validation_step(const levin::Batch& values, int64_t index) override {
    // Random numbers of a validation belong to the run's.
    log("val_noise", at::rand({}));
    Net::validation_step(values, index);
    if (where == Where::kInValidation) fail_at(Where::kInValidation, batch);
  }
  void on_validation_end() override { validated_in.push_back(current_epoch()); }

 private:
  int64_t index_ = 0;
};

struct Disturbance {
  std::string name;
  Where where;
  int64_t batch;  // of the second epoch
  int64_t accumulate = 1;
  bool streams = false;
  int64_t steps_kept = -1;  // of the run when it is saved
  levin::Portion val_check_interval = 1.0;
  const char* compile = "no";
};
std::ostream& operator<<(std::ostream& out, const Disturbance& one) { return out << one.name; }

/// The samples, which cannot be read once.
struct Loose : levin::Dataset {
  std::shared_ptr<levin::Dataset> data = dataset(100);
  std::shared_ptr<bool> broken = std::make_shared<bool>(false);
  int64_t size() const override { return data->size(); }
  levin::Batch get(std::span<const int64_t> indices) const override {
    if (*broken) {
      *broken = false;
      throw std::runtime_error("a wire came loose");
    }
    return data->get(indices);
  }
};

/// Breaks the data before the batch of that index in the second epoch.
struct Breaker : levin::Callback {
  std::shared_ptr<bool> broken;
  int64_t batch = 0;
  std::string state_key() const override { return "breaker"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t index) override {
    if (trainer.current_epoch() == 1 && index + 1 == batch) *broken = true;
  }
};

struct Ended {
  std::shared_ptr<Failing> net = std::make_shared<Failing>();
  std::vector<Recorder::Row> rows;
  std::string last, error = "no error";
};

/// 3 epochs of 13 batches, validated after each.
Ended train_disturbed(const Disturbance& setting, const std::string& root, bool disturbed,
                      const std::string& ckpt_path) {
  auto options = quiet(root);
  auto recorder = std::make_shared<Recorder>();
  auto checkpoint = levin::model_checkpoint({.dirpath = root + "/ckpt", .every_n_epochs = 5});
  options.logger = recorder;
  options.callbacks = {checkpoint};
  options.max_epochs = 3;
  options.log_every_n_steps = 1;
  options.accumulate_grad_batches = setting.accumulate;
  options.val_check_interval = setting.val_check_interval;
  options.engine.compile = setting.compile;
  if (setting.streams) options.max_steps = 1000;  // for the schedule, which wants an end
  options.seed = 11;
  auto loose = std::make_shared<Loose>();
  if (disturbed && setting.where == Where::kInData) {
    auto breaker = std::make_shared<Breaker>();
    breaker->broken = loose->broken;
    breaker->batch = setting.batch;
    options.callbacks.push_back(breaker);
  }
  levin::Trainer trainer(options);
  Ended ended;
  if (disturbed) ended.net->where = setting.where;
  ended.net->batch = setting.batch;
  const auto rows_of = [](int64_t size) {
    std::vector<int64_t> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    return dataset(size)->get(all);
  };
  const levin::DataLoaderOptions as{.batch_size = 8, .shuffle = true};
  const levin::DataLoader data =
      setting.streams ? levin::DataLoader(std::make_shared<levin::test::InShards>(
                                              rows_of(100), std::vector<int64_t>{30, 20, 50}),
                                          as)
                      : levin::DataLoader(loose, as);
  ended.error = message_of([&] {
    trainer.fit(ended.net, data, levin::DataLoader(dataset(24, 6), {.batch_size = 8}),
                {.ckpt_path = ckpt_path});
  });
  ended.rows = recorder->rows;
  ended.last = checkpoint->last_model_path();
  return ended;
}

void keep_what_is_alike(levin::State& training) {
  training.erase("options");
  training.erase("callbacks");
  auto progress = training.child("progress");
  progress.erase("seconds");
  training.set("progress", progress);
}

void expect_equal_states(const levin::State& a, const levin::State& b, const std::string& path) {
  ASSERT_EQ(a.values().size(), b.values().size()) << path;
  for (const auto& [key, value] : a.values()) {
    const std::string here = path + "/" + key;
    ASSERT_TRUE(b.contains(key)) << here;
    if (std::holds_alternative<levin::State>(value)) {
      expect_equal_states(a.child(key), b.child(key), here);
    } else if (std::holds_alternative<at::Tensor>(value)) {
      EXPECT_TRUE(torch::equal(a.tensor(key), b.tensor(key))) << here;
    } else if (std::holds_alternative<double>(value)) {
      EXPECT_EQ(a.number(key), b.number(key)) << here;
    } else if (std::holds_alternative<int64_t>(value)) {
      EXPECT_EQ(a.integer(key), b.integer(key)) << here;
    }
  }
}

/// (step, name) -> value.
std::map<std::pair<int64_t, std::string>, double> by_name(const std::vector<Recorder::Row>& rows,
                                                          int64_t after) {
  std::map<std::pair<int64_t, std::string>, double> values;
  for (const auto& row : rows) {
    if (row.step > after) values[{row.step, row.name}] = row.value;
  }
  return values;
}

class Boundary : public ::testing::TestWithParam<Disturbance> {};

TEST_P(Boundary, ARunThatFailedGoesOnAsIfItHadNot) {
  const Disturbance& setting = GetParam();
  const Scratch whole_root, root;
  const Ended whole = train_disturbed(setting, whole_root.str(), false, "");
  ASSERT_EQ(whole.error, "no error");
  const Ended failed = train_disturbed(setting, root.str(), true, "");
  ASSERT_THAT(failed.error, ::testing::HasSubstr("a wire came loose"));
  ASSERT_NE(failed.last, "");
  const int64_t kept =
      levin::load_checkpoint(failed.last).training.child("progress").integer("global_step");
  EXPECT_EQ(kept, setting.steps_kept);
  const Ended resumed = train_disturbed(setting, root.str(), false, failed.last);
  ASSERT_EQ(resumed.error, "no error");
  expect_same_weights(*whole.net, *resumed.net);
  auto whole_state = levin::load_checkpoint(whole.last).training;
  auto state = levin::load_checkpoint(resumed.last).training;
  keep_what_is_alike(whole_state);
  keep_what_is_alike(state);
  expect_equal_states(whole_state, state, "");
  EXPECT_EQ(by_name(whole.rows, kept), by_name(resumed.rows, kept));
  std::vector<int64_t> validated = failed.net->validated_in;
  validated.insert(validated.end(), resumed.net->validated_in.begin(),
                   resumed.net->validated_in.end());
  EXPECT_EQ(validated, whole.net->validated_in);
}

INSTANTIATE_TEST_SUITE_P(
    All, Boundary,
    ::testing::Values(Disturbance{"InStep", Where::kInStep, 4, 1, false, 17},
                      Disturbance{"InTheFirstStepOfAnEpoch", Where::kInStep, 0, 1, false, 13},
                      Disturbance{"InTheLastStepOfAnEpoch", Where::kInStep, 12, 1, false, 25},
                      Disturbance{"InStepOfAStream", Where::kInStep, 4, 1, true, 18},
                      Disturbance{"AtStart", Where::kAtStart, 4, 1, false, 17},
                      Disturbance{.name = "AtTheStartOfAReplay",
                                  .where = Where::kAtStart,
                                  .batch = 9,
                                  .steps_kept = 22,
                                  .compile = "replay"},
                      Disturbance{"BeforeBackward", Where::kBeforeBackward, 4, 1, false, 17},
                      Disturbance{"BeforeUpdate", Where::kBeforeUpdate, 4, 1, false, 17},
                      Disturbance{"InAGroup", Where::kInStep, 4, 3, false, 6},
                      Disturbance{"InAGroupOfAStream", Where::kInStep, 4, 3, true, 6},
                      Disturbance{"AtAGroupsEnd", Where::kBeforeUpdate, 5, 3, false, 6},
                      Disturbance{"InDataOfAGroup", Where::kInData, 4, 3, false, 6},
                      Disturbance{"InData", Where::kInData, 4, 1, false, 17},
                      Disturbance{"InValidation", Where::kInValidation, 0, 1, false, 26},
                      Disturbance{.name = "InValidationInsideAnEpoch",
                                  .where = Where::kInValidation,
                                  .batch = 0,
                                  .steps_kept = 18,
                                  .val_check_interval = 0.4}),
    [](const auto& info) { return info.param.name; });

/// Two optimizers by hand, the first of which has stepped when the second fails.
struct HalfWay : Net {
  HalfWay() : Net(0.0) { automatic_optimization = false; }
  levin::OptimizerConfig configure_optimizers() override {
    return {levin::optim::sgd({.lr = 0.1}).parameters("net.0.*"),
            levin::optim::sgd({.lr = 0.1}).parameters("net.4.*")};
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    const at::Tensor loss = Net::training_step(batch, index);
    for (const int64_t i : {0, 1}) optimizer(i).zero_grad();
    manual_backward(loss);
    optimizer(0).step();
    if (global_step() == 3) throw std::runtime_error("a wire came loose");
    optimizer(1).step();
    return loss;
  }
};

TEST(Boundary, AStepThatHasChangedParametersIsNotSaved) {
  const Scratch root;
  auto options = quiet(root.str());
  options.callbacks = {levin::model_checkpoint({.save_top_k = -1, .every_n_train_steps = 2})};
  options.max_epochs = 1;
  levin::Trainer trainer(options);
  EXPECT_NE(message_of([&] {
              trainer.fit(std::make_shared<HalfWay>(),
                          levin::DataLoader(dataset(40), {.batch_size = 8}));
            }),
            "no error");
  EXPECT_EQ(fs::canonical(root / "checkpoints/last").filename(), "epoch=0-step=2");
}

// Several ranks save together, which one that has failed cannot: what was saved before stays.

/// 3 epochs of 7 batches on each of two ranks, saved after every 3 steps; fails in step 11.
std::string trained_on_rank(int64_t rank, const fs::path& root, bool fails,
                            const std::string& ckpt_path) {
  auto options = quiet(root.string());
  options.accelerator = "cpu";
  options.seed = 11;
  options.callbacks = {levin::model_checkpoint({.save_top_k = -1, .every_n_train_steps = 3})};
  options.max_epochs = 3;
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Failing>();
  net->batch = 4;
  if (fails) net->where = Where::kInStep;
  std::string error = message_of([&] {
    trainer.fit(net, levin::DataLoader(dataset(100), {.batch_size = 8, .shuffle = true}),
                std::nullopt, {.ckpt_path = ckpt_path});
  });
  if (error == "no error" && rank == 0) {
    levin::save_weights(root / "weights.safetensors", levin::module_state(*net));
  }
  return error;
}

TEST(Boundary, OfTwoRanksOneThatFailedIsNotSavedAndWhatWasStays) {
  const Scratch whole;
  const auto on_ranks = [](const fs::path& root, const std::vector<bool>& fails,
                           const std::string& ckpt_path) {
    return run_world(2, [&](int64_t rank, const fs::path&) {
      return trained_on_rank(rank, root, fails[static_cast<size_t>(rank)], ckpt_path);
    });
  };
  ASSERT_THAT(on_ranks(whole.path(), {false, false}, ""), ::testing::Each("no error"));
  for (const std::vector<bool>& fails :
       std::vector<std::vector<bool>>{{true, true}, {false, true}, {true, false}}) {
    const Scratch root;
    const auto errors = on_ranks(root.path(), fails, "");
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_NE(errors[rank], "no error") << rank;
      if (fails[rank]) EXPECT_THAT(errors[rank], ::testing::HasSubstr("a wire came loose"));
    }
    const fs::path last = fs::canonical(root / "checkpoints/last");
    EXPECT_EQ(last.filename(), "epoch=1-step=9");
    const auto folders = fs::directory_iterator(root / "checkpoints");
    EXPECT_EQ(std::distance(begin(folders), end(folders)), 4) << "steps 3, 6, 9 and last";
    EXPECT_THAT(on_ranks(root.path(), {false, false}, last.string()), ::testing::Each("no error"));
    EXPECT_EQ(off_by(root / "weights.safetensors", whole / "weights.safetensors", 0.0), "");
  }
}

}  // namespace
