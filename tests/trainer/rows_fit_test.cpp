// A Trainer on rows of a file: the mean over tokens of ranks and accumulated batches, and a resume in an epoch's middle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/rows/rows.h"
#include "tests/rows/small_rows.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace rows_fit {
namespace {

using levin::test::run_world;
using levin::test::Scratch;
using small_run::off_by;
using small_run::quiet;
using ::testing::Each;
namespace fs = std::filesystem;

/// Predicts each letter from the one before it.
struct Bigrams : levin::Module {
  torch::nn::Embedding letters = register_module("letters", torch::nn::Embedding(35, 8));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 35));

  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    set_loss_weight(levin::text::counted_labels(batch, /*shifted=*/true));
    const auto logits = head->forward(letters->forward(batch["input_ids"]));
    auto next = batch["labels"].narrow(1, 1, batch["labels"].size(1) - 1);
    if (batch.contains("document")) {
      const auto& document = batch["document"];
      const auto starts =
          document.narrow(1, 1, next.size(1)) != document.narrow(1, 0, next.size(1));
      next = next.masked_fill(starts, -100);
    }
    return torch::nn::functional::cross_entropy(logits.narrow(1, 0, next.size(1)).reshape({-1, 35}),
                                                next.reshape({-1}));
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.5}); }
};

/// Prompts and completions of many lengths, so that few batches have as many tokens that count.
fs::path put_rows(const fs::path& folder) {
  std::string text;
  for (int i = 0; i < 48; ++i) {
    text += "{\"prompt\": \"" + std::string(static_cast<size_t>(1 + i % 5), 'a') +
            "\", \"completion\": \"" +
            std::string("bcdefghijklmnop").substr(0, static_cast<size_t>(1 + 7 * i % 13)) + "\"}\n";
  }
  return levin::test::put(folder / "rows.jsonl", text);
}

struct RowsForm {
  std::string name;
  int64_t ranks;
  int64_t batch_size;  // on a rank
  int64_t accumulate = 1;
  bool packing = false;
  std::string sampling = "random";
};
std::ostream& operator<<(std::ostream& out, const RowsForm& form) { return out << form.name; }

struct RowsRun {
  int64_t max_epochs = 2;
  int64_t max_steps = -1;
  std::string resume = {};
  std::string save = {};  ///< a checkpoint of its end
};

/// The weights at the end, in folder/name.safetensors; 8 rows a step.
void train_on_rows(const RowsForm& form, const fs::path& folder, const std::string& name,
                   const RowsRun& run = {}) {
  auto options = quiet(folder.string());
  options.enable_checkpointing = false;
  options.seed = 3;
  options.max_epochs = run.max_epochs;
  options.max_steps = run.max_steps;
  options.accumulate_grad_batches = form.accumulate;
  levin::Trainer trainer(options);
  const auto tokenizer = levin::text::Tokenizer::from_pretrained(folder / "tokenizer");
  const auto data = levin::text::rows(folder / "rows.jsonl", tokenizer,
                                      {.packing = form.packing,
                                       .max_length = 20,
                                       .batch_size = form.batch_size,
                                       .train_sampling_strategy = form.sampling,
                                       .cache_dir = (folder / "cache").string()});
  const auto net = std::make_shared<Bigrams>();
  trainer.fit(net, data, {.ckpt_path = run.resume});
  if (!run.save.empty()) trainer.save_checkpoint(run.save);
  levin::save_weights(folder / (name + ".safetensors"), levin::module_state(*net));
}

class RowsFit : public ::testing::TestWithParam<RowsForm> {
 protected:
  RowsFit() {
    put_rows(folder.path());
    levin::test::letter_tokenizer(folder / "tokenizer");
  }
  /// "" where the ranks' weights are those of `name`.
  std::vector<std::string> trained(const RowsForm& form, const std::string& name,
                                   double tolerance) {
    return run_world(form.ranks, [&](int64_t rank, const fs::path&) {
      const std::string own = "rank" + std::to_string(rank);
      train_on_rows(form, folder.path(), own);
      return name.empty() ? std::string()
                          : off_by(folder / (own + ".safetensors"),
                                   folder / (name + ".safetensors"), tolerance);
    });
  }
  Scratch folder;
};

TEST_P(RowsFit, IsTheMeanOverAllTokensOfAStep) {
  const RowsForm& form = GetParam();
  RowsForm whole = form;
  whole.ranks = 1;
  whole.batch_size = form.ranks * form.batch_size * form.accumulate;
  whole.accumulate = 1;
  ASSERT_THAT(trained(whole, "", 0), Each(""));
  fs::rename(folder / "rank0.safetensors", folder / "whole.safetensors");
  EXPECT_THAT(trained(form, "whole", 2e-6), Each(""));
}

INSTANTIATE_TEST_SUITE_P(
    Forms, RowsFit,
    ::testing::Values(RowsForm{"accumulated", 1, 2, 4}, RowsForm{"two_ranks", 2, 4},
                      RowsForm{"two_ranks_accumulated", 2, 2, 2},
                      RowsForm{"three_ranks_packed", 3, 1, 2, true},
                      RowsForm{"two_ranks_in_order", 2, 4, 1, false, "sequential"}),
    [](const auto& each) { return each.param.name; });

class RowsResume : public RowsFit {};

TEST_P(RowsResume, InTheMiddleOfAnEpochIsBitForBit) {
  const RowsForm& form = GetParam();
  const std::string place = (folder / "middle.ckpt").string();
  const auto run = [&](const std::string& name, const RowsRun& how) {
    return run_world(form.ranks, [&](int64_t rank, const fs::path&) {
      train_on_rows(form, folder.path(), name + std::to_string(rank), how);
      return std::string();
    });
  };
  ASSERT_THAT(run("whole", {}), Each(""));
  ASSERT_THAT(run("half", {.max_steps = 4, .save = place}), Each(""));
  ASSERT_THAT(run("resumed", {.resume = place}), Each(""));
  for (int64_t rank = 0; rank < form.ranks; ++rank) {
    const std::string number = std::to_string(rank) + ".safetensors";
    EXPECT_EQ(levin::test::get(folder / ("resumed" + number)),
              levin::test::get(folder / ("whole" + number)));
    EXPECT_NE(levin::test::get(folder / ("half" + number)),
              levin::test::get(folder / ("whole" + number)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, RowsResume,
    ::testing::Values(RowsForm{"random", 1, 3}, RowsForm{"packed", 2, 1, 1, true},
                      RowsForm{"by_length", 2, 3, 1, false, "group_by_length"}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace rows_fit
