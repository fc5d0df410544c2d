// prediction_writer: each row once and in the data's order, on any number of ranks; files that appear
// complete, and replace nothing else. tests/oracle/prediction_files_test.cpp reads them in Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/module/wrap.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"
#include "tests/support/small_disk.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace prediction_writer {
namespace {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using levin::test::run_world;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Predicts each sample as it is.
struct Echo : levin::Module {
  torch::nn::Linear layer{nullptr};
  Echo() {
    layer = register_module("layer", torch::nn::Linear(6, 6));
    levin::wrap(layer.ptr());
  }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return batch["x"] + 0 * layer->forward(batch["x"]);
  }
};

/// Predicts what a function says.
struct Saying : levin::Module {
  std::function<at::Tensor(const levin::Batch&, int64_t)> say;
  explicit Saying(std::function<at::Tensor(const levin::Batch&, int64_t)> say)
      : say(std::move(say)) {}
  at::Tensor predict_step(const levin::Batch& batch, int64_t index) override {
    return say(batch, index);
  }
};

levin::Batch all_of(int64_t samples) {
  std::vector<int64_t> indices(static_cast<size_t>(samples));
  std::iota(indices.begin(), indices.end(), 0);
  return dataset(samples)->get(indices);
}

levin::DataLoader loader(int64_t samples, bool pads = false) {
  return {dataset(samples), {.batch_size = 4, .pad_last_batch = pads}};
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

levin::TrainerOptions writing(const levin::PredictionWriterOptions& options, const fs::path& root) {
  levin::TrainerOptions trainer = quiet(root.string());
  trainer.callbacks = {levin::prediction_writer(options)};
  return trainer;
}

void predict(const levin::PredictionWriterOptions& options, const fs::path& root,
             const std::shared_ptr<levin::Module>& module, levin::DataLoader data) {
  levin::Trainer(writing(options, root))
      .predict(module, std::move(data), {.return_predictions = false});
}

at::Tensor rows_in(const fs::path& folder) {
  return levin::load_weights(folder / "predictions.safetensors").tensor("predictions");
}

TEST(PredictionWriter, WritesEachRowOnceAndInTheOrderOfTheData) {
  for (const auto& [ranks, samples] :
       {std::pair(1, 19), std::pair(2, 19), std::pair(3, 20), std::pair(3, 2), std::pair(2, 1)}) {
    for (const char* strategy : {"auto", "fsdp"}) {
      for (const bool pads : {false, true}) {
        const Scratch root;
        const auto words =
            run_world(ranks, [&, samples = samples](int64_t, const fs::path& folder) {
              auto options = writing(
                  {.output_dir = root.str(), .write_interval = "epoch", .format = "safetensors"},
                  folder);
              options.strategy = std::getenv("WORLD_SIZE") == std::string("1") ? "auto" : strategy;
              return error_of([&] {
                levin::Trainer trainer(options);
                const auto returned = trainer.predict(
                    std::make_shared<Echo>(), loader(samples, pads), {.return_predictions = false});
                if (!returned.empty()) throw levin::Error("test", "outputs", __FILE__, __LINE__);
              });
            });
        EXPECT_THAT(words, Each("no error")) << ranks << " " << samples << " " << strategy;
        EXPECT_THAT(names_in(root.path()), ElementsAre("predictions.safetensors"));
        EXPECT_TRUE(torch::equal(rows_in(root.path()), all_of(samples)["x"]))
            << ranks << " ranks, " << samples << " samples, " << strategy
            << (pads ? " padded" : "");
      }
    }
  }
}

TEST(PredictionWriter, WritesWhatAllRanksReadOnce) {
  const Scratch root;
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) {
    auto options = writing(
        {.output_dir = root.str(), .write_interval = "epoch", .format = "safetensors"}, folder);
    options.engine.use_distributed_sampler = false;
    return error_of([&] { levin::Trainer(options).predict(std::make_shared<Echo>(), loader(10)); });
  });
  EXPECT_THAT(words, Each("no error"));
  EXPECT_TRUE(torch::equal(rows_in(root.path()), all_of(10)["x"]));
}

TEST(PredictionWriter, WritesTheRowsOfStreamsAndOfDispatchedBatchesOnce) {
  for (const bool dispatches : {false, true}) {
    const Scratch root;
    const auto words = run_world(2, [&](int64_t, const fs::path& folder) {
      auto options = writing(
          {.output_dir = root.str(), .write_interval = "epoch", .format = "safetensors"}, folder);
      options.dispatch_batches = dispatches;
      return error_of([&] {
        auto data =
            std::make_shared<levin::test::InShards>(all_of(17), std::vector<int64_t>{12, 5});
        levin::Trainer(options).predict(
            std::make_shared<Echo>(),
            levin::DataLoader(levin::IterableDatasetPtr(data), {.batch_size = 4}));
      });
    });
    EXPECT_THAT(words, Each("no error"));
    const at::Tensor rows = rows_in(root.path()), wanted = all_of(17)["x"];
    ASSERT_EQ(rows.sizes(), wanted.sizes());
    const auto sorted = [](const at::Tensor& x) {
      return x.index_select(0, x.select(1, 0).argsort());
    };
    EXPECT_TRUE(torch::equal(sorted(rows), sorted(wanted))) << dispatches;
  }
}

TEST(PredictionWriter, FilesOfBatchesAppearWhileOneRankPredicts) {
  const Scratch root;
  std::vector<size_t> seen;
  auto options = writing({.output_dir = (root / "out").string(), .format = "csv"}, root.path());
  options.callbacks.push_back(levin::lambda_callback(
      {.on_evaluation_batch_end = [&](levin::Trainer&, levin::Module&, std::string_view,
                                      const levin::Batch&, int64_t) {
        seen.push_back(names_in(root / "out").size());
      }}));
  levin::Trainer(options).predict(std::make_shared<Echo>(), loader(10));
  EXPECT_THAT(seen, ElementsAre(1, 2, 3));
  EXPECT_THAT(
      names_in(root / "out"),
      ElementsAre("predictions_000000.csv", "predictions_000001.csv", "predictions_000002.csv"));
  const std::string last = levin::test::get(root / "out/predictions_000002.csv");
  EXPECT_THAT(last, HasSubstr("prediction_0,prediction_1,prediction_2,prediction_3,prediction_4,"
                              "prediction_5\n"));
  EXPECT_EQ(std::ranges::count(last, '\n'), 3);
}

TEST(PredictionWriter, SeveralRanksWriteTheSameFilesOfBatches) {
  for (const int64_t ranks : {2, 3}) {
    const Scratch root;
    const auto words = run_world(ranks, [&](int64_t, const fs::path& folder) {
      return error_of([&] {
        predict({.output_dir = root.str(),
                 .write_interval = "batch_and_epoch",
                 .format = "safetensors"},
                folder, std::make_shared<Echo>(), loader(20));
      });
    });
    EXPECT_THAT(words, Each("no error"));
    std::vector<at::Tensor> parts;
    for (const std::string& name : names_in(root.path())) {
      if (name == "predictions.safetensors") continue;
      parts.push_back(levin::load_weights(root / name).tensor("predictions"));
    }
    EXPECT_EQ(parts.size(), ranks == 2 ? 3U : 2U);
    EXPECT_EQ(parts.front().size(0), 4 * ranks);
    EXPECT_TRUE(torch::equal(at::cat(parts), all_of(20)["x"]));
    EXPECT_TRUE(torch::equal(rows_in(root.path()), all_of(20)["x"]));
  }
}

TEST(PredictionWriter, ReplacesOnlyWhatItHasWritten) {
  const Scratch root;
  const fs::path out = root / "out";
  levin::Trainer trainer(
      writing({.output_dir = out.string(), .write_interval = "batch_and_epoch"}, root.path()));
  trainer.predict(std::make_shared<Echo>(), loader(10));
  EXPECT_EQ(names_in(out).size(), 4U);
  levin::test::put(out / "notes.npy", "mine");
  levin::test::put(out / "predictions_of_others.npy", "theirs");
  trainer.predict(std::make_shared<Echo>(), loader(5));  // fewer batches: no file of before is left
  EXPECT_THAT(names_in(out), ElementsAre("notes.npy", "predictions.npy", "predictions_000000.npy",
                                         "predictions_000001.npy", "predictions_of_others.npy"));
  int64_t predicted = 0;
  const auto module = std::make_shared<Saying>([&](const levin::Batch& batch, int64_t) {
    ++predicted;
    return batch["x"];
  });
  for (const char* interval : {"batch", "epoch"}) {
    EXPECT_THAT(error_of([&] {
                  predict({.output_dir = out.string(), .write_interval = interval}, root.path(),
                          module, loader(10));
                }),
                AllOf(HasSubstr("files.replace: cannot write predictions to "),
                      HasSubstr("exists, and this run has not written it")));
  }
  EXPECT_EQ(predicted, 0);
}

TEST(PredictionWriter, AFailureLeavesNoPartOfAFile) {
  const Scratch root;
  const auto module = std::make_shared<Saying>([](const levin::Batch& batch, int64_t index) {
    if (index == 2) throw std::runtime_error("no more");
    return batch["x"];
  });
  EXPECT_THROW(predict({.output_dir = root.str(), .write_interval = "batch_and_epoch"}, root.path(),
                       module, loader(20)),
               std::runtime_error);
  EXPECT_THAT(names_in(root.path()),
              ElementsAre("predictions_000000.npy", "predictions_000001.npy"));
}

TEST(PredictionWriter, OutputsThatDoNotMakeRowsAreRefused) {
  struct Wrong {
    const char* format;
    std::function<at::Tensor(const levin::Batch&, int64_t)> say;
    const char* words;
    int64_t ranks = 1;
  };
  const std::vector<Wrong> all = {
      {"npy", [](const levin::Batch& b, int64_t) { return b["x"].sum(); },
       "trainer.predictions: predict_step returned a tensor without rows"},
      {"npy", [](const levin::Batch&, int64_t) { return at::Tensor(); },
       "trainer.predictions: predict_step returned no tensor"},
      {"npy", [](const levin::Batch& b, int64_t index) { return b["x"].narrow(1, 0, 3 - index); },
       "trainer.predictions: predict_step returned rows of Float [2] after rows of Float [3]"},
      {"npy",
       [](const levin::Batch& b, int64_t index) {
         return index == 0 ? b["x"] : b["x"].to(at::kDouble);
       },
       "returned rows of Double [6] after rows of Float [6]"},
      {"npy", [](const levin::Batch& b, int64_t) { return b["x"].to(at::kBFloat16); },
       "trainer.prediction_writer: got predictions of BFloat16 [6]"},
      {"csv", [](const levin::Batch& b, int64_t) { return b["x"].to(at::kComplexFloat); },
       "trainer.prediction_writer: got predictions of ComplexFloat [6]"},
      {"safetensors", [](const levin::Batch& b, int64_t) { return b["x"].to(at::kComplexDouble); },
       "trainer.prediction_writer: got predictions of ComplexDouble [6]"},
      {"npy", [](const levin::Batch& b, int64_t) { return b["x"].mean(0, true); },
       "trainer.predictions: predict_step returned 1 rows for a batch of 4 samples", 2},
  };
  for (const Wrong& wrong : all) {
    const Scratch root;
    const auto words = run_world(wrong.ranks, [&](int64_t, const fs::path& folder) {
      return error_of([&] {
        predict({.output_dir = root.str(), .write_interval = "epoch", .format = wrong.format},
                folder, std::make_shared<Saying>(wrong.say), loader(8 * wrong.ranks));
      });
    });
    EXPECT_THAT(words, Contains(HasSubstr(wrong.words)));
    EXPECT_THAT(names_in(root.path()), IsEmpty());
  }
}

TEST(PredictionWriter, NothingPredictedIsAnError) {
  const Scratch root;
  auto options = writing({.output_dir = root.str()}, root.path());
  options.limit_predict_batches = 0;
  EXPECT_THAT(
      error_of([&] { levin::Trainer(options).predict(std::make_shared<Echo>(), loader(8)); }),
      HasSubstr("trainer.predictions: no process predicted anything"));
}

TEST(PredictionWriter, WrongOptionsAreRefused) {
  const std::string id = "trainer.prediction_writer: got ";
  const auto refusal = [](const levin::PredictionWriterOptions& options) {
    return error_of([&] { levin::prediction_writer(options); });
  };
  EXPECT_THAT(refusal({}), HasSubstr(id + "no output_dir"));
  EXPECT_THAT(refusal({.output_dir = "out", .write_interval = "step"}),
              HasSubstr(id + "write_interval = 'step'"));
  EXPECT_THAT(refusal({.output_dir = "out", .format = "pt"}), HasSubstr(id + "format = 'pt'"));
}

/// On a disk that is too small for the rows. 0: all went as it should.
int fill_up(const Scratch& root, int64_t ranks) {
  at::set_num_threads(1);
  if (!levin::test::mount_small_disk(root.str(), size_t{1} << 20)) return levin::test::kSkipped;
  const auto module = std::make_shared<Saying>(
      [](const levin::Batch& batch, int64_t) { return torch::ones({batch.size(), 40000}); });
  const auto said = run_world(ranks, [&](int64_t, const fs::path& folder) {
    return error_of([&] {
      predict({.output_dir = (root / "out").string(), .write_interval = "epoch"}, folder, module,
              loader(16));
    });
  });
  for (const std::string& one : said) {
    if (one.find("no space left on device; free some space") == std::string::npos) return 1;
  }
  return names_in(root / "out").empty() ? 0 : 2;
}

TEST(PredictionWriter, AFullDiskIsAnErrorAndLeavesNoFile) {
  for (const int64_t ranks : {1, 2}) {
    const Scratch root;
    const int code = levin::test::run_child([&] { return fill_up(root, ranks); });
    if (code == levin::test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
    EXPECT_EQ(code, 0) << "see fill_up, " << ranks << " ranks";
  }
}

}  // namespace
}  // namespace prediction_writer
