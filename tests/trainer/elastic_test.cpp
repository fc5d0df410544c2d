// A run that is resumed inside an epoch on another number of ranks, or with another batch size:
// each sample of the epoch is read once, the last group is stepped with, validation is held.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/in_shards.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace elastic {
namespace {

using namespace small_run;  // NOLINT
using levin::test::run_world;
using ::testing::Each;

constexpr int64_t kSamples = 90;
constexpr int64_t kEpochs = 3;

/// Writes down what it reads and where it validates, a file for each rank, a line at a time.
struct Reader : levin::Module {
  torch::nn::Linear layer{nullptr};
  fs::path file;
  double lr = 0.1;

  explicit Reader(fs::path file) : file(std::move(file)) {
    torch::manual_seed(1);
    layer = register_module("layer", torch::nn::Linear(6, 2));
  }
  void write(const std::string& line) const {
    std::ofstream(file, std::ios::app) << line << std::endl;
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    const at::Tensor& numbers = batch["number"];
    const auto loss = torch::nn::functional::cross_entropy(layer->forward(batch["x"]), batch["y"]);
    std::string line =
        fmt::format("read {} {} {:.9f}", current_epoch(), global_step(), loss.item<double>());
    for (int64_t i = 0; i < numbers.numel(); ++i)
      line += fmt::format(" {}", numbers[i].item<int64_t>());
    write(line);
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_loss", torch::nn::functional::cross_entropy(layer->forward(batch["x"]), batch["y"]));
  }
  void on_validation_end() override {
    write(fmt::format("validated {} {}", current_epoch(), global_step()));
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = lr}); }
};

/// What was read and validated, of all ranks; what a later attempt did again counts in its place.
struct Record {
  /// By epoch and global step: losses weighted by samples, and the samples.
  struct Step {
    double loss_sum = 0;
    std::vector<int64_t> samples;
  };
  std::map<std::pair<int64_t, int64_t>, Step> steps;
  std::map<int64_t, int64_t> validations;  ///< by epoch

  /// The files of one attempt, which went on from that step.
  void add(const fs::path& folder, int64_t attempt, int64_t ranks, int64_t from_step) {
    std::erase_if(steps, [&](const auto& one) { return one.first.second >= from_step; });
    for (int64_t rank = 0; rank < ranks; ++rank) {
      std::ifstream file(folder / fmt::format("read.{}.{}", attempt, rank));
      for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string what;
        int64_t epoch = 0, step = 0, number = 0;
        words >> what >> epoch >> step;
        if (what == "validated") {
          if (rank == 0) ++validations[epoch];
          continue;
        }
        double loss = 0;
        words >> loss;
        Step& here = steps[{epoch, step}];
        int64_t count = 0;
        for (; words >> number; ++count) here.samples.push_back(number);
        here.loss_sum += loss * static_cast<double>(count);
      }
    }
  }

  std::vector<int64_t> samples_of(int64_t epoch) const {
    std::vector<int64_t> all;
    for (const auto& [place, step] : steps) {
      if (place.first == epoch) all.insert(all.end(), step.samples.begin(), step.samples.end());
    }
    std::ranges::sort(all);
    return all;
  }
};

std::vector<int64_t> each_once(int64_t samples) {
  std::vector<int64_t> all(static_cast<size_t>(samples));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

struct Attempt {
  int64_t ranks = 1;
  int64_t batch_size = 12;
  int64_t accumulate = 1;
  int64_t stop_at = -1;              ///< request_stop after so many steps
  int64_t kill_at = -1;              ///< SIGKILL to all ranks in the step after so many
  std::vector<int64_t> shards = {};  ///< samples of each, of a stream; empty: data by index
  bool async_save = false;
};

levin::DataLoader training_data(const Attempt& attempt) {
  if (attempt.shards.empty()) {
    return {numbered(kSamples), {.batch_size = attempt.batch_size, .shuffle = true}};
  }
  const int64_t size = std::accumulate(attempt.shards.begin(), attempt.shards.end(), int64_t{0});
  const auto data =
      std::make_shared<levin::test::InShards>(numbered(size)->get(each_once(size)), attempt.shards);
  return {levin::IterableDatasetPtr(data),
          {.batch_size = attempt.batch_size, .shuffle = true, .shuffle_buffer_size = 8}};
}

/// Ends the run, or the process, after so many steps.
struct End : levin::Callback {
  Attempt attempt;
  explicit End(Attempt attempt) : attempt(attempt) {}
  std::string state_key() const override { return "end"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.global_step() == attempt.stop_at) trainer.request_stop("stopped");
  }
  void on_train_batch_start(levin::Trainer& trainer, levin::Module&, const levin::Batch&,
                            int64_t) override {
    if (trainer.global_step() == attempt.kill_at) ::kill(::getpid(), SIGKILL);
  }
};

/// One attempt of the run whose files lie in the folder. Gives what the ranks said.
std::vector<std::string> train(const fs::path& folder, int64_t number, const Attempt& attempt) {
  return run_world(attempt.ranks, [&](int64_t rank, const fs::path&) -> std::string {
    auto options = quiet(folder.string());
    options.seed = 5;
    options.max_epochs = kEpochs;
    options.accumulate_grad_batches = attempt.accumulate;
    options.ckpt_path = "last";
    options.engine.comm.timeout_s = levin::test::patient_s(5);
    options.callbacks = {std::make_shared<End>(attempt),
                         levin::model_checkpoint({.dirpath = (folder / "ckpt").string(),
                                                  .save_top_k = 1,
                                                  .every_n_train_steps = 2,
                                                  .async_save = attempt.async_save})};
    levin::Trainer trainer(options);
    trainer.fit(std::make_shared<Reader>(folder / fmt::format("read.{}.{}", number, rank)),
                training_data(attempt), levin::DataLoader(numbered(30), {.batch_size = 6}));
    return "";
  });
}

/// The global step of the newest checkpoint, by its folder's name.
int64_t saved_step(const fs::path& folder) {
  std::error_code none;
  const std::string name = fs::read_symlink(folder / "ckpt" / "last", none).filename().string();
  const size_t place = name.find("step=");
  return place == std::string::npos ? 0 : std::stoll(name.substr(place + 5));
}

/// The attempts one after another, each from where the one before was saved.
Record run(const fs::path& folder, const std::vector<Attempt>& attempts) {
  Record record;
  for (size_t i = 0; i < attempts.size(); ++i) {
    const int64_t from = saved_step(folder);
    const auto said = train(folder, static_cast<int64_t>(i), attempts[i]);
    if (attempts[i].kill_at < 0) {
      EXPECT_THAT(said, Each("")) << "attempt " << i;
    }
    record.add(folder, static_cast<int64_t>(i), attempts[i].ranks, from);
  }
  return record;
}

void expect_whole(const Record& record, int64_t samples = kSamples) {
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    EXPECT_EQ(record.samples_of(epoch), each_once(samples)) << "epoch " << epoch;
    EXPECT_GE(record.validations.contains(epoch) ? record.validations.at(epoch) : 0, 1)
        << "epoch " << epoch;
  }
}

void expect_same_losses(const Record& got, const Record& wanted) {
  ASSERT_EQ(got.steps.size(), wanted.steps.size());
  for (const auto& [place, step] : wanted.steps) {
    ASSERT_TRUE(got.steps.contains(place)) << place.first << " " << place.second;
    const auto& mine = got.steps.at(place);
    EXPECT_EQ(mine.samples.size(), step.samples.size());
    EXPECT_NEAR(mine.loss_sum / static_cast<double>(mine.samples.size()),
                step.loss_sum / static_cast<double>(step.samples.size()), 1e-5)
        << "epoch " << place.first << ", step " << place.second;
  }
}

// 90 samples, 12 a step: 8 steps an epoch, the last of 6 samples.

TEST(Elastic, ARunThatChangesItsRanksInsideEpochsEqualsOneThatDoesNot) {
  const Scratch whole, changed;
  const Record wanted = run(whole.path(), {{}});
  expect_whole(wanted);
  const Record got = run(changed.path(), {{.ranks = 1, .batch_size = 12, .stop_at = 3},
                                          {.ranks = 2, .batch_size = 6, .stop_at = 7},
                                          {.ranks = 3, .batch_size = 4, .stop_at = 13},
                                          {.ranks = 1, .batch_size = 12, .stop_at = 18},
                                          {.ranks = 2, .batch_size = 6}});
  expect_whole(got);
  expect_same_losses(got, wanted);
}

TEST(Elastic, SoDoesOneThatAccumulates) {
  const Scratch whole, changed;
  const Record wanted = run(whole.path(), {{.batch_size = 1, .accumulate = 12}});
  expect_whole(wanted);
  const Record got =
      run(changed.path(), {{.ranks = 1, .batch_size = 1, .accumulate = 12, .stop_at = 3},
                           {.ranks = 2, .batch_size = 1, .accumulate = 6, .stop_at = 12},
                           {.ranks = 3, .batch_size = 1, .accumulate = 4, .stop_at = 15},
                           {.ranks = 1, .batch_size = 1, .accumulate = 12}});
  expect_whole(got);
  expect_same_losses(got, wanted);
}

/// Saved on four ranks, gone on with on three, one and two; 8 steps an epoch of 96 samples.
std::vector<Attempt> four_three_one_two(const std::vector<int64_t>& shards,
                                        bool async_save = false) {
  std::vector<Attempt> attempts = {{.ranks = 4, .batch_size = 3, .stop_at = 3},
                                   {.ranks = 3, .batch_size = 4, .stop_at = 6},
                                   {.ranks = 1, .batch_size = 12, .stop_at = 7},
                                   {.ranks = 2, .batch_size = 6, .stop_at = 13},
                                   {.ranks = 4, .batch_size = 3}};
  for (Attempt& attempt : attempts) {
    attempt.shards = shards;
    attempt.async_save = async_save;
  }
  return attempts;
}

TEST(Elastic, AStreamOfOneShardEqualsOneThatIsNotDisturbed) {
  const Scratch whole, changed;
  const Record wanted = run(whole.path(), {{.shards = {96}}});
  expect_whole(wanted, 96);
  const Record got = run(changed.path(), four_three_one_two({96}));
  expect_whole(got, 96);
  expect_same_losses(got, wanted);
}

TEST(Elastic, AStreamOfShardsOfTheRanksOwnIsReadOnce) {
  for (const auto& shards : std::vector<std::vector<int64_t>>{
           {24, 24, 24, 24}, {12, 12, 12, 12, 12, 12, 12, 12}, {48, 24, 24}}) {
    const Scratch folder;
    expect_whole(run(folder.path(), four_three_one_two(shards)), 96);
  }
}

TEST(Elastic, SavesBehindTrainingAreGoneOnFromAsWell) {
  const Scratch whole, changed;
  const Record wanted = run(whole.path(), {{.shards = {96}}});
  const Record got = run(changed.path(), four_three_one_two({96}, /*async_save=*/true));
  expect_whole(got, 96);
  expect_same_losses(got, wanted);
}

TEST(Elastic, AnotherBatchSizeReadsTheRestOfTheEpoch) {
  for (const int64_t batch_size : {5, 7, 16, 64}) {
    const Scratch folder;
    const Record got = run(folder.path(), {{.batch_size = 8, .stop_at = 3},
                                           {.batch_size = batch_size, .stop_at = 5},
                                           {.ranks = 2, .batch_size = 8}});
    SCOPED_TRACE(batch_size);
    expect_whole(got);
  }
}

TEST(Elastic, AnotherGroupSizeStepsWithTheLastGroup) {
  const Scratch folder;
  // 12 batches of 8, 6 of them read when groups become groups of 4: 4 and the last 2.
  const Record got = run(folder.path(), {{.batch_size = 8, .accumulate = 2, .stop_at = 3},
                                         {.batch_size = 8, .accumulate = 4}});
  expect_whole(got);
  std::set<int64_t> steps;
  for (const auto& [place, step] : got.steps) {
    if (place.first == 0) steps.insert(place.second);
  }
  EXPECT_EQ(steps, (std::set<int64_t>{0, 1, 2, 3, 4}));
}

TEST(Elastic, KilledAtRandomAndResumedOnOneTwoAndThreeRanks) {
  const Scratch whole, killed;
  const Record wanted = run(whole.path(), {{}});
  const auto seed = static_cast<unsigned>(::getpid());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  std::vector<Attempt> attempts;
  for (int64_t step = 0; step < 24; step += 2 + static_cast<int64_t>(random() % 4)) {
    const int64_t ranks = 1 + std::ssize(attempts) % 3;
    attempts.push_back({.ranks = ranks,
                        .batch_size = 12 / ranks,
                        .kill_at = step,
                        .async_save = std::ssize(attempts) % 2 == 1});
  }
  attempts.push_back({.ranks = 2, .batch_size = 6});
  const Record got = run(killed.path(), attempts);
  expect_whole(got);
  expect_same_losses(got, wanted);
}

}  // namespace
}  // namespace elastic
