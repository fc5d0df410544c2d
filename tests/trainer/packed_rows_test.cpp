// Rows of several documents train a model as the documents in a row each do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/models/fine_tune/fine_tune.h"
#include "levin/models/lora.h"
#include "tests/models/small_models.h"
#include "tests/rows/small_rows.h"
#include "tests/trainer/small_run.h"

namespace packed_rows {
namespace {

using namespace small_run;  // NOLINT
using ::testing::DoubleNear;
using ::testing::Pointwise;

struct StepLosses : levin::Callback {
  std::vector<double> losses;
  std::string state_key() const override { return "step_losses"; }
  void on_train_batch_end(levin::Trainer&, levin::Module&, const at::Tensor& loss,
                          const levin::Batch&, int64_t) override {
    losses.push_back(loss.item<double>());
  }
};

/// Prompts and completions of 2 to 15 letters.
std::string pairs() {
  std::string rows;
  for (size_t i = 0; i < 48; ++i) {
    rows += "{\"prompt\": \"" + std::string("abcdefgh").substr(i % 7, 1 + i % 4) +
            "\", \"completion\": \"" + std::string("ijklmnopqrst").substr(i % 5, 1 + i * 5 % 7) +
            "\"}\n";
  }
  return rows;
}

struct Kind {
  const char* name;
  std::string (*config)();
  bool adapts;
};

/// The loss of each step, of which each has all documents of the file.
std::vector<double> losses_of(const Kind& kind, bool packing) {
  const Scratch scratch;
  const auto file = levin::test::put(scratch / "rows.jsonl", pairs());
  const auto tokenizer =
      levin::text::Tokenizer::from_pretrained(levin::test::letter_tokenizer(scratch / "tokens"));
  const levin::text::RowsOptions options{
      .packing = packing, .max_length = 24, .cache_dir = (scratch / "cache").string()};
  auto whole = options;
  whole.batch_size = levin::text::rows(file, tokenizer, options)->report().samples;
  if (packing) EXPECT_LT(whole.batch_size, 25);
  if (!packing) EXPECT_EQ(whole.batch_size, 48);
  auto run = quiet(scratch.str());
  run.accelerator = "cpu";
  run.seed = 5;
  run.max_epochs = 12;
  run.enable_checkpointing = false;
  const auto losses = std::make_shared<StepLosses>();
  run.callbacks = {losses};
  levin::Trainer trainer(run);
  torch::manual_seed(4);
  const auto net = levin::test::small(kind.config(), "text-generation");
  if (kind.adapts) levin::lora::add(net, {.r = 4, .target_modules = {"all-linear"}});
  trainer.fit(levin::models::fine_tune(net, {.objective = "sft", .lr = kind.adapts ? 2e-2 : 4e-3}),
              levin::text::rows(file, tokenizer, whole));
  return losses->losses;
}

class PackedRows : public ::testing::TestWithParam<Kind> {};

TEST_P(PackedRows, HaveTheLossesOfADocumentARow) {
  const auto apart = losses_of(GetParam(), false), packed = losses_of(GetParam(), true);
  ASSERT_EQ(apart.size(), 12U);
  EXPECT_LT(apart.back(), apart.front() - 0.2);
  EXPECT_THAT(packed, Pointwise(DoubleNear(1e-5), apart));
}

INSTANTIATE_TEST_SUITE_P(All, PackedRows,
                         ::testing::Values(Kind{"Qwen3", levin::test::small_qwen3, false},
                                           Kind{"Qwen3Adapted", levin::test::small_qwen3, true},
                                           Kind{"Gpt2Adapted", levin::test::small_gpt2, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace packed_rows
