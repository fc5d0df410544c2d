// Metrics of each kind of state, logged in validation and in training: over ranks, and over a stop inside the epoch.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/on_xla.h"
#include "tests/trainer/small_run.h"

namespace metrics_of_runs {
namespace {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace metrics = levin::metrics;

/// Counts, kept scores, counts at thresholds, moments and kept numbers of a batch's logits.
struct Measured {
  std::shared_ptr<metrics::F1Score> f1 = std::make_shared<metrics::F1Score>(
      metrics::ClassificationOptions{.num_classes = 3, .average = "macro"});
  std::shared_ptr<metrics::AUROC> exact =
      std::make_shared<metrics::AUROC>(metrics::CurveOptions{.num_classes = 3});
  std::shared_ptr<metrics::AveragePrecision> binned = std::make_shared<metrics::AveragePrecision>(
      metrics::CurveOptions{.num_classes = 3, .average = "weighted", .thresholds = 20});
  std::shared_ptr<metrics::R2Score> r2 = std::make_shared<metrics::R2Score>();
  std::shared_ptr<metrics::SpearmanCorrCoef> spearman =
      std::make_shared<metrics::SpearmanCorrCoef>();
  std::shared_ptr<metrics::Accuracy> top_2 =
      std::make_shared<metrics::Accuracy>(metrics::ClassificationOptions{
          .num_classes = 3, .average = "weighted", .top_k = 2, .ignore_index = 1});
  std::shared_ptr<metrics::Recall> binary =
      std::make_shared<metrics::Recall>(metrics::ClassificationOptions{.task = "binary"});
  std::shared_ptr<metrics::Perplexity> perplexity = std::make_shared<metrics::Perplexity>(1);

  void log(levin::Module& module, const std::string& stage, const at::Tensor& logits,
           const at::Tensor& labels) {
    // The logits of a sample are rounded in another way in a batch of another size.
    const at::Tensor scores = (logits.detach().to(at::kDouble) * 64).round() / 64;
    f1->update(scores, labels);
    exact->update(scores, labels);
    binned->update(scores, labels);
    r2->update(scores.select(1, 0), labels);
    spearman->update(scores.select(1, 0), labels);
    top_2->update(scores, labels);
    binary->update(scores.select(1, 0), labels.eq(0).to(at::kLong));
    perplexity->update(scores.unsqueeze(0), labels.unsqueeze(0));
    module.log(stage + "f1", f1);
    module.log(stage + "exact", exact);
    module.log(stage + "binned", binned);
    module.log(stage + "r2", r2);
    module.log(stage + "spearman", spearman);
    module.log(stage + "top_2", top_2);
    module.log(stage + "binary", binary);
    module.log(stage + "perplexity", perplexity);
  }
};

std::string words_of(const levin::Metrics& values, const std::string& stage) {
  std::string words;
  for (const char* name :
       {"f1", "exact", "binned", "r2", "spearman", "top_2", "binary", "perplexity"}) {
    // Sums of float64 in another order differ in the last digits.
    words += fmt::format("{}={:.10f} ", name, values.at(stage + name));
  }
  return words;
}

struct Measuring : Net {
  Measured validation, training;
  Measuring() : Net(0.0) {}
  at::Tensor training_step(const levin::Batch& batch) override {
    const at::Tensor logits = net->forward(batch["x"]);
    training.log(*this, "train_", logits, batch["y"]);
    return torch::nn::functional::cross_entropy(logits, batch["y"]);
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    validation.log(*this, "val_", net->forward(batch["x"]), batch["y"]);
  }
};

/// 101 samples leave ranks with different numbers of them, and of 3 samples a fourth rank has none.
TEST(MetricsOfRuns, AreThoseOfAllSamplesWhateverTheNumberOfRanks) {
  for (const int64_t samples : {101, 3}) {
    std::set<std::string> results;
    for (const int64_t ranks : {1, 2, 3, 4}) {
      const auto words = run_world(ranks, [&](int64_t, const fs::path& folder) {
        auto options = quiet(folder.string());
        options.enable_checkpointing = false;
        options.seed = 11;
        levin::Trainer trainer(options);
        return words_of(trainer.validate(std::make_shared<Measuring>(),
                                         levin::DataLoader(dataset(samples), {.batch_size = 8})),
                        "val_");
      });
      results.insert(words.begin(), words.end());
    }
    EXPECT_EQ(results.size(), 1U) << ::testing::PrintToString(results);
    EXPECT_THAT(results, Each(StartsWith("f1=0.")));
  }
}

/// Ends the run after three steps, as if it had been interrupted there.
struct Interrupt : levin::Callback {
  std::string state_key() const override { return "interrupt"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.global_step() == 3) trainer.request_stop("interrupted");
  }
};

TEST(MetricsOfRuns, GoOnInsideAnEpochFromACheckpoint) {
  const auto run = [](const Scratch& root, bool stops, const std::string& from) {
    auto options = quiet(root.str());
    options.callbacks = {levin::model_checkpoint({.dirpath = root.str() + "/ckpt"})};
    if (stops) options.callbacks.push_back(std::make_shared<Interrupt>());
    options.max_epochs = 1;
    options.seed = 11;
    levin::Trainer trainer(options);
    trainer.fit(std::make_shared<Measuring>(), levin::DataLoader(dataset(64), {.batch_size = 8}),
                std::nullopt, {.ckpt_path = from});
    return stops ? std::to_string(trainer.global_step())
                 : words_of(trainer.callback_metrics(), "train_");
  };
  const Scratch whole, parts;
  const std::string wanted = run(whole, false, "");
  EXPECT_EQ(run(parts, true, ""), "3");
  EXPECT_EQ(run(parts, false, parts.str() + "/ckpt/last"), wanted);
}

TEST(MetricsOfRuns, HaveTheSameValuesOnXla) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const auto validate = [](levin::TrainerOptions options) {
    options.enable_checkpointing = false;
    options.seed = 11;
    levin::Trainer trainer(options);
    return trainer.validate(std::make_shared<Measuring>(),
                            levin::DataLoader(dataset(40), {.batch_size = 8}));
  };
  const Scratch root;
  const levin::Metrics wanted = validate(quiet(root.str()));
  const levin::Metrics values = validate(on_xla(root.str(), 1, 1));
  for (const auto& [name, value] : wanted) EXPECT_NEAR(values.at(name), value, 1e-6) << name;
  EXPECT_EQ(values.size(), wanted.size());
}

/// Labels that are out of range, and known to be so only on the device.
struct OutOfRange : Measuring {
  void validation_step(const levin::Batch& batch, int64_t) override {
    validation.log(*this, "val_", net->forward(batch["x"]), batch["y"] + 2);
  }
};

TEST(MetricsOfRuns, LabelsOutOfRangeAreAnErrorOnXlaWhenTheValueIsRead) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch root;
  auto options = on_xla(root.str(), 1, 1);
  options.enable_checkpointing = false;
  levin::Trainer trainer(options);
  EXPECT_THAT(error_of([&] {
                trainer.validate(std::make_shared<OutOfRange>(),
                                 levin::DataLoader(dataset(40), {.batch_size = 8}));
              }),
              HasSubstr("observe.metric.label: got "));
}

}  // namespace
}  // namespace metrics_of_runs
