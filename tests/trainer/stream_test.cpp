// Training on streams, whose length may be unknown, and on batches that rank 0 hands out.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>
#include <set>

#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using levin::DataLoader;
using levin::test::error_of;
using levin::test::InShards;
using levin::test::run_world;
using ::testing::Each;
using ::testing::StartsWith;

/// The samples of dataset(size) in shards.
std::shared_ptr<InShards> in_shards(const std::vector<int64_t>& sizes, int64_t seed = 5) {
  const int64_t size = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<int64_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return std::make_shared<InShards>(dataset(size, seed)->get(all), sizes);
}

DataLoader stream_loader(const std::vector<int64_t>& sizes, levin::DataLoaderOptions options,
                         bool tells_sizes = false) {
  auto data = in_shards(sizes);
  data->tells_sizes = tells_sizes;
  return {levin::IterableDatasetPtr(data), std::move(options)};
}

/// Without a schedule, which would want to know the length of the run.
struct Free : Net {
  int64_t validation_samples = 0;
  std::vector<int64_t> validated_at;
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
  void validation_step(const levin::Batch& batch, int64_t index) override {
    Net::validation_step(batch, index);
    validation_samples += batch.size();
  }
  void on_validation_start() override { validated_at.push_back(global_step()); }
};

levin::TrainerOptions silent(const std::string& root) {
  auto options = quiet(root);
  options.enable_checkpointing = false;
  options.seed = 11;
  return options;
}

std::shared_ptr<Free> fitted(levin::TrainerOptions options, const DataLoader& loader,
                             std::optional<DataLoader> validation = std::nullopt) {
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Free>();
  trainer.fit(net, loader, std::move(validation));
  return net;
}

TEST(StreamTraining, OfOneShardEqualsDataThatIsReadByIndex) {
  const Scratch root;
  for (const int64_t accumulate : {1, 4}) {
    auto options = silent(root.str());
    options.max_epochs = 3;
    options.accumulate_grad_batches = accumulate;
    const auto by_index = fitted(options, DataLoader(dataset(77), {.batch_size = 8}));
    const auto counted = fitted(
        options, stream_loader({77}, {.batch_size = 8, .num_workers = 2}, /*tells_sizes=*/true));
    expect_same_weights(*counted, *by_index);
    const auto uncounted =
        fitted(options, stream_loader({77}, {.batch_size = 8, .num_workers = 2}));
    if (accumulate == 1) {
      expect_same_weights(*uncounted, *by_index);
    } else {  // 10 batches: the last group has two, which is known when its second one comes
      const auto mine = uncounted->parameters(), theirs = by_index->parameters();
      for (size_t i = 0; i < mine.size(); ++i) {
        EXPECT_TRUE(torch::allclose(mine[i], theirs[i], 1e-4, 1e-6)) << i;
      }
    }
  }
}

TEST(StreamTraining, StopsAtStepsEpochsAndLimits) {
  struct Case {
    std::string name;
    std::function<void(levin::TrainerOptions&)> set;
    int64_t steps, expected_batches;
  };
  const Scratch root;
  for (const Case& one : std::vector<Case>{
           {"max_epochs", [](auto& o) { o.max_epochs = 3; }, 15, -1},
           {"max_steps", [](auto& o) { o.max_steps = 7; }, 7, -1},
           {"fast_dev_run", [](auto& o) { o.fast_dev_run = 2; }, 2, 2},
           {"below", [](auto& o) { o.max_epochs = 2, o.limit_train_batches = 3; }, 6, 3},
           {"above", [](auto& o) { o.max_epochs = 2, o.limit_train_batches = 9; }, 10, 9},
           {"none", [](auto& o) { o.max_epochs = 2, o.limit_train_batches = 0.0; }, 0, 0}}) {
    auto options = silent(root.str());
    one.set(options);
    levin::Trainer trainer(options);
    trainer.fit(std::make_shared<Free>(), stream_loader({23, 13}, {.batch_size = 8}));
    EXPECT_EQ(trainer.global_step(), one.steps) << one.name;
    EXPECT_EQ(trainer.num_training_batches(), one.expected_batches) << one.name;
    const int64_t known = options.max_steps >= 0 ? options.max_steps : -1;
    if (one.expected_batches < 0) {
      EXPECT_EQ(trainer.estimated_stepping_batches(), known);
    }
  }
}

TEST(StreamTraining, ValidatesAtTheEndOfAnEpochOrAfterACountOfBatches) {
  const Scratch root;
  auto options = silent(root.str());
  options.max_epochs = 2;
  const auto validation = [] { return stream_loader({9, 4}, {.batch_size = 4}); };
  auto net = fitted(options, stream_loader({40}, {.batch_size = 8}), validation());
  EXPECT_EQ(net->validated_at, (std::vector<int64_t>{5, 10}));
  EXPECT_EQ(net->validation_samples, 26);
  options.val_check_interval = 2;
  options.limit_val_batches = 2;
  net = fitted(options, stream_loader({40}, {.batch_size = 8}), validation());
  EXPECT_EQ(net->validated_at, (std::vector<int64_t>{2, 4, 7, 9}));
  EXPECT_EQ(net->validation_samples, 4 * 8);
}

TEST(StreamTraining, AFractionOfAnUnknownLengthIsAnErrorThatNamesTheFlag) {
  const Scratch root;
  const auto fit = [&](const std::function<void(levin::TrainerOptions&)>& set) {
    auto options = silent(root.str());
    options.max_steps = 2;
    set(options);
    return error_of(
        [&] { fitted(options, stream_loader({40}, {.batch_size = 8}), stream_loader({9}, {})); });
  };
  EXPECT_THAT(fit([](auto& o) { o.val_check_interval = 0.25; }),
              StartsWith("trainer.options: got val_check_interval = 0.25, a fraction, but the "
                         "length of the stream is unknown; give a count"));
  EXPECT_THAT(fit([](auto& o) { o.limit_train_batches = 0.5; }),
              StartsWith("trainer.options: got limit_train_batches = 0.5"));
  EXPECT_THAT(fit([](auto& o) { o.limit_val_batches = 0.5; }),
              StartsWith("trainer.options: got limit_val_batches = 0.5"));
  auto options = silent(root.str());
  options.limit_test_batches = 0.5;
  levin::Trainer trainer(options);
  EXPECT_THAT(error_of([&] {
                trainer.test(std::make_shared<Free>(), stream_loader({40}, {.batch_size = 8}));
              }),
              StartsWith("trainer.options: got limit_test_batches = 0.5"));
}

TEST(StreamTraining, AStreamWithoutABatchIsAnError) {
  const Scratch root;
  auto options = silent(root.str());
  options.max_steps = 2;
  EXPECT_THAT(error_of([&] { fitted(options, stream_loader({0, 0}, {.batch_size = 8})); }),
              StartsWith("trainer.dataloader: the training stream gave no batch"));
}

struct StopAt : levin::Callback {
  int64_t step;
  explicit StopAt(int64_t step) : step(step) {}
  std::string state_key() const override { return "stop_at"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.global_step() == step) trainer.request_stop("far enough");
  }
};

struct DataWay {
  std::string name;
  bool is_stream;
  bool dispatch;
  int64_t accumulate = 1;
};
std::ostream& operator<<(std::ostream& out, const DataWay& way) { return out << way.name; }

struct Result {
  std::string weights;  // of every bit
  std::string rows;
};

Result train_way(const DataWay& way, const fs::path& root, int64_t stop_at,
                 const std::string& ckpt_path) {
  auto options = quiet(root.string());
  options.seed = 5;
  options.max_epochs = 3;
  options.log_every_n_steps = 1;
  options.accumulate_grad_batches = way.accumulate;
  options.dispatch_batches = way.dispatch;
  auto recorder = std::make_shared<Recorder>();
  recorder->folder = root.string();
  options.logger = recorder;
  options.callbacks = {levin::model_checkpoint({.dirpath = root.string() + "/ckpt"}),
                       std::make_shared<StopAt>(stop_at)};
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Free>();
  const levin::DataLoaderOptions loading = {
      .batch_size = 4, .shuffle = true, .num_workers = 1, .shuffle_buffer_size = 6};
  const DataLoader training =
      way.is_stream ? stream_loader({14, 20, 6, 20}, loading) : DataLoader(dataset(63), loading);
  const DataLoader validation = way.is_stream ? stream_loader({9, 4}, {.batch_size = 4})
                                              : DataLoader(dataset(13, 6), {.batch_size = 4});
  trainer.fit(net, training, validation, {.ckpt_path = ckpt_path});
  Result result;
  for (const at::Tensor& parameter : net->parameters()) {
    const at::Tensor flat = parameter.detach().contiguous().view(-1);
    for (int64_t i = 0; i < flat.numel(); ++i) {
      result.weights += fmt::format("{:a} ", flat[i].item<double>());
    }
  }
  for (const auto& row : recorder->rows) {
    result.rows += fmt::format("{} {} {} {:.17g}\n", row.epoch, row.step, row.name, row.value);
  }
  return result;
}

class DataWays : public ::testing::TestWithParam<DataWay> {};

TEST_P(DataWays, ResumedInsideAnEpochEqualsNoInterruption) {
  for (const int64_t ranks : {1, 2}) {
    EXPECT_THAT(run_world(ranks,
                          [](int64_t, const fs::path& folder) {
                            const auto in = [&](const std::string& name) {
                              fs::create_directories(folder / name);
                              return folder / name;
                            };
                            const Result whole = train_way(GetParam(), in("whole"), -1, "");
                            // In the first epoch, at the end of it on two ranks, and in the second.
                            for (const int64_t stop_at : {2, 3, 6, 7}) {
                              const fs::path broken = in(fmt::format("broken_{}", stop_at));
                              train_way(GetParam(), broken, stop_at, "");
                              const Result rest = train_way(GetParam(), broken, -1,
                                                            (broken / "ckpt/last").string());
                              if (rest.weights != whole.weights) {
                                return fmt::format("other weights after {} steps", stop_at);
                              }
                              if (!whole.rows.ends_with(rest.rows)) {
                                return "logged\n" + rest.rows + "wanted the end of\n" + whole.rows;
                              }
                            }
                            return std::string();
                          }),
                Each(""))
        << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(All, DataWays,
                         ::testing::Values(DataWay{"Stream", true, false},
                                           DataWay{"AccumulatedStream", true, false, 2},
                                           DataWay{"DispatchedStream", true, true},
                                           DataWay{"DispatchedByIndex", false, true}),
                         [](const auto& info) { return info.param.name; });

TEST(DispatchBatches, TrainsValidatesAndLogsAsWithoutIt) {
  EXPECT_THAT(
      run_world(2,
                [](int64_t, const fs::path& folder) {
                  const auto in = [&](const std::string& name) {
                    fs::create_directories(folder / name);
                    return folder / name;
                  };
                  const Result ordinary = train_way({"", false, false}, in("ordinary"), -1, "");
                  const Result dispatch = train_way({"", false, true}, in("dispatch"), -1, "");
                  if (dispatch.weights != ordinary.weights) return std::string("other weights");
                  return dispatch.rows == ordinary.rows
                             ? ""
                             : dispatch.rows + "instead of\n" + ordinary.rows;
                }),
      Each(""));
}

TEST(StreamTraining, RanksOfUnequalLengthsEndTheirEpochsTogether) {
  const auto fit = [](bool dispatch) {
    return run_world(2, [&](int64_t, const fs::path& folder) {
      auto options = silent(folder.string());
      options.max_epochs = 3;
      options.dispatch_batches = dispatch;
      levin::Trainer trainer(options);
      trainer.fit(std::make_shared<Free>(), stream_loader({14, 20, 6, 20}, {.batch_size = 4}));
      return fmt::format("{} steps", trainer.global_step());
    });
  };
  EXPECT_THAT(fit(false), Each("18 steps"));  // 4 + 2 batches on rank 0, 5 + 5 on rank 1
  EXPECT_THAT(fit(true), Each("24 steps"));   // 60 samples, 8 a step
}

/// Counts each sample it is given.
struct Exact : Free {
  std::shared_ptr<levin::metrics::Accuracy> counted = std::make_shared<levin::metrics::Accuracy>();
  void validation_step(const levin::Batch& batch, int64_t) override {
    counted->update(net->forward(batch["x"]), batch["y"]);
    log("counted", counted);
    log("samples", torch::tensor(double(batch.size())), {.reduce = "sum"});
  }
};

TEST(StreamTraining, EvaluationIsExactWhateverTheRanks) {
  std::set<std::string> results;
  for (const int64_t ranks : {1, 2, 3}) {
    for (const bool dispatch : {false, true}) {
      const auto words = run_world(ranks, [&](int64_t, const fs::path& folder) {
        auto options = silent(folder.string());
        options.dispatch_batches = dispatch;
        levin::Trainer trainer(options);
        const auto metrics = trainer.validate(std::make_shared<Exact>(),
                                              stream_loader({9, 1, 14, 7}, {.batch_size = 4}));
        return fmt::format("counted={:.17g} samples={}", metrics.at("counted"),
                           metrics.at("samples"));
      });
      results.insert(words.begin(), words.end());
    }
  }
  EXPECT_THAT(results, ::testing::ElementsAre(::testing::EndsWith("samples=31")));
}

TEST(DispatchBatches, AnExceptionOfTheDataIsThrownOnEveryRank) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const fs::path& folder) {
                          auto options = silent(folder.string());
                          options.dispatch_batches = true;
                          options.max_epochs = 1;
                          auto data = in_shards({30});
                          data->on_read = [](int64_t, int64_t sample) {
                            if (sample == 20) throw std::runtime_error("end of tape");
                          };
                          fitted(options, {levin::IterableDatasetPtr(data), {.batch_size = 4}});
                          return "";
                        }),
              ::testing::ElementsAre(
                  "data.loader.sample: shard 0, sample 20: end of tape [rank 0]",
                  "data.loader.sample: on rank 0: shard 0, sample 20: end of tape [rank 1]"));
}

TEST(DispatchBatches, IsAFlag) {
  const std::vector<const char*> arguments = {"program", "--dispatch-batches", "true"};
  EXPECT_TRUE(levin::parse<levin::TrainerOptions>(3, arguments.data(), {}).dispatch_batches);
  EXPECT_EQ(levin::options_as_text(levin::TrainerOptions()).at("dispatch_batches"), "false");
}

}  // namespace
