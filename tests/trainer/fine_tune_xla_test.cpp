// An adapter trained on XLA's CPU device on packed rows: the losses of the CPU, and one program for all steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/models/fine_tune/fine_tune.h"
#include "levin/models/lora.h"
#include "levin/xla/device/runtime.h"
#include "tests/models/small_models.h"
#include "tests/rows/small_rows.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/replayed.h"
#include "tests/trainer/on_xla.h"

namespace {

using namespace small_run;  // NOLINT
using levin::xla::RuntimeReport;
using ::testing::DoubleNear;
using ::testing::Pointwise;

struct Way {
  std::string name;
  int64_t vocabulary = 61;  ///< of 9000 tokens the loss is in chunks
  bool packing = true;
  int64_t devices = 1;
  std::string compile = "no";
  std::string precision = "32-true";
};
std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

struct NoteSteps : levin::Callback {
  std::vector<double> losses;
  std::vector<RuntimeReport> reports;  ///< after each step
  std::string state_key() const override { return "note_steps"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor& loss,
                          const levin::Batch&, int64_t) override {
    losses.push_back(loss.item<double>());
    if (const auto& runtime = trainer.accelerator().xla()) reports.push_back(runtime->report());
  }
};

int64_t programs(const RuntimeReport& report) {
  return report.compilations + report.disk_cache_hits;
}

/// Texts of 2 to 15 letters, of which 10 and more pack into a row.
std::string texts() {
  std::string rows;
  for (size_t i = 0; i < 64; ++i) {
    rows += "{\"prompt\": \"" + std::string("abcdefgh").substr(i % 7, 1 + i % 4) +
            "\", \"completion\": \"" + std::string("ijklmnopqrst").substr(i % 5, 1 + i * 5 % 7) +
            "\"}\n";
  }
  return rows;
}

/// Optimizer steps on rows of 24 tokens, four a batch.
std::shared_ptr<NoteSteps> trained(const Way& way, bool is_on_xla) {
  const Scratch scratch;
  const auto file = levin::test::put(scratch / "rows.jsonl", texts());
  const auto tokenizer =
      levin::text::Tokenizer::from_pretrained(levin::test::letter_tokenizer(scratch / "tokens"));
  const auto rows = levin::text::rows(file, tokenizer,
                                      {.packing = way.packing,
                                       .max_length = 24,
                                       .batch_size = is_on_xla ? 4 / way.devices : 4,
                                       .drop_last = true,
                                       .cache_dir = (scratch / "cache").string()});
  auto options = is_on_xla ? on_xla(scratch.str(), way.devices, 4) : quiet(scratch.str());
  if (!is_on_xla) options.accelerator = "cpu";
  options.max_epochs = 4;
  options.seed = 5;
  options.enable_checkpointing = false;
  options.precision = way.precision;
  options.engine.compile = is_on_xla ? way.compile : "no";
  const auto steps = std::make_shared<NoteSteps>();
  options.callbacks = {steps};
  levin::Trainer trainer(options);
  std::string config = levin::test::small_qwen3();
  config.replace(config.find("\"vocab_size\": 61"), 16,
                 "\"vocab_size\": " + std::to_string(way.vocabulary));
  torch::manual_seed(4);
  const auto net = levin::test::small(config, "text-generation");
  levin::lora::add(net, {.r = 4, .target_modules = {"all-linear"}});
  trainer.fit(levin::models::fine_tune(net, {.objective = "sft", .lr = 1e-2}), rows);
  return steps;
}

class XlaFineTune : public ::testing::TestWithParam<Way> {};

TEST_P(XlaFineTune, OfPackedRowsIsOneProgramForAllStepsWithTheLossesOfTheCpu) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Way& way = GetParam();
  const auto wanted = trained(way, /*is_on_xla=*/false), found = trained(way, /*is_on_xla=*/true);
  ASSERT_GE(wanted->losses.size(), 12U);
  EXPECT_LT(wanted->losses.back(), wanted->losses.front() - 0.5);
  const double tolerance = way.precision == "32-true" ? 1e-5 : 3e-2;
  EXPECT_THAT(found->losses, Pointwise(DoubleNear(tolerance), wanted->losses));
  EXPECT_EQ(found->reports.back().host_fallbacks, 0);
  // One for zeros, of which the optimizer's moments begin, and one for every step.
  EXPECT_EQ(programs(found->reports.front()), 2);
  EXPECT_EQ(programs(found->reports.back()), 2);
}

INSTANTIATE_TEST_SUITE_P(
    All, XlaFineTune,
    ::testing::Values(Way{.name = "Called"}, Way{.name = "Replayed", .compile = "replay"},
                      Way{.name = "InChunks", .vocabulary = 9000},
                      Way{.name = "InChunksReplayed", .vocabulary = 9000, .compile = "replay"},
                      Way{.name = "InChunksInBf16", .vocabulary = 9000, .precision = "bf16-mixed"},
                      Way{.name = "TwoDevices", .vocabulary = 9000, .devices = 2}),
    [](const auto& info) { return info.param.name; });

/// What packing is for: batches of rows of other lengths are a program each.
TEST(XlaFineTuneOfPaddedRows, AreManyPrograms) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const auto found = trained({.name = "Padded", .packing = false}, /*is_on_xla=*/true);
  EXPECT_GT(programs(found->reports.back()), 3);
}

}  // namespace
