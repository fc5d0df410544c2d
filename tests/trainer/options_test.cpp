#include "levin/trainer/options.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "levin/accelerator/options.h"
#include "levin/base/error.h"
#include "levin/trainer/run/limits.h"
#include "tests/support/error_of.h"

namespace {

using levin::test::error_id;
// Lightning's users write the options in Lightning's order; this fails to compile when it changes.
const levin::TrainerOptions kLightningsOrder = {.accelerator = "cpu",
                                                .strategy = "auto",
                                                .devices = 1,
                                                .num_nodes = 1,
                                                .precision = "32-true",
                                                .logger = true,
                                                .callbacks = {},
                                                .fast_dev_run = false,
                                                .max_epochs = 3,
                                                .min_epochs = 1,
                                                .max_steps = -1,
                                                .min_steps = 0,
                                                .max_time = "00:12:00:00",
                                                .limit_train_batches = 1.0,
                                                .limit_val_batches = 10,
                                                .limit_test_batches = 0.5,
                                                .limit_predict_batches = 1.0,
                                                .val_check_interval = 0.25,
                                                .check_val_every_n_epoch = 1,
                                                .num_sanity_val_steps = 2,
                                                .log_every_n_steps = 50,
                                                .enable_checkpointing = true,
                                                .enable_progress_bar = true,
                                                .enable_model_summary = true,
                                                .accumulate_grad_batches = 1,
                                                .gradient_clip_val = 1.0,
                                                .gradient_clip_algorithm = "norm",
                                                .deterministic = false,
                                                .benchmark = false,
                                                .inference_mode = true,
                                                .detect_anomaly = false,
                                                .barebones = false,
                                                .default_root_dir = ".",
                                                .engine = {.use_distributed_sampler = true}};

TEST(TrainerOptions, EveryOptionReadsBackFromItsText) {
  levin::TrainerOptions options = kLightningsOrder;
  const auto text = levin::options_as_text(options);
  EXPECT_EQ(text.at("limit_val_batches"), "10");
  EXPECT_EQ(text.at("limit_train_batches"), "1.0");
  EXPECT_EQ(text.at("val_check_interval"), "0.25");
  EXPECT_EQ(text.at("devices"), "1");
  EXPECT_EQ(text.at("max_epochs"), "3");
  const char* arguments[] = {
      "program", "--limit-val-batches", "0.5", "--devices", "auto", "--logger", "false"};
  const auto parsed = levin::parse<levin::TrainerOptions>(7, arguments, options);
  EXPECT_TRUE(parsed.limit_val_batches.is_fraction());
  EXPECT_EQ(parsed.devices.count(), 0);
  EXPECT_FALSE(parsed.logger.on());
}

/// The help of each option as one line, however it is wrapped.
template <class Options>
std::string help_of() {
  const char* arguments[] = {"program", "--help"};
  Options options;
  std::istringstream words(*levin::detail::read_options(
      2, arguments, [&](levin::FieldVisitor& field) { options.fields(field); }));
  std::string text;
  for (std::string word; words >> word;) text += word + " ";
  return text;
}

/// Each option's name, and the heading that it stands under.
struct Headings : levin::FieldVisitor {
  std::map<std::string, std::string> of;
  std::string heading;
  void visit(levin::Field field) override {
    if (field.name.empty()) {
      heading = field.help;
    } else {
      of.emplace(field.name, heading);
    }
  }
};

TEST(TrainerOptions, EachOptionOfTheEngineHasAHeading) {
  levin::TrainerOptions options;
  Headings all, shared;
  options.fields(all);
  options.engine.fields(shared);
  EXPECT_GT(shared.of.size(), 30U);
  for (const auto& [name, heading] : shared.of) {
    EXPECT_NE(all.of[name], "") << name << "; place it in TrainerOptions::fields";
  }
}

TEST(TrainerOptions, HelpHoldsTheContractOfReplay) {
  for (const std::string& help :
       {help_of<levin::TrainerOptions>(), help_of<levin::AcceleratorOptions>()}) {
    for (const char* words : {"As with jax.jit and CUDA graphs, a replay runs the operators that "
                              "were recorded",
                              "no line of your code", "Pass tensors to log()", "keep a clone()",
                              "levin::StepValue", "torch::rand, then torch::where",
                              "found only by the next compile_check", "docs/compile.md"}) {
      EXPECT_NE(help.find(words), std::string::npos) << words;
    }
  }
}

TEST(Limits, StepsOfTheRunKnowTheShortLastGroup) {
  levin::TrainerOptions options;
  options.max_epochs = 3;
  options.accumulate_grad_batches = 4;
  const auto limits = levin::detail::resolve_limits(options, 10, 0);
  EXPECT_EQ(limits.total_steps(), 9);
  EXPECT_EQ(limits.window_size(0), 4);
  EXPECT_EQ(limits.window_size(9), 2);
  EXPECT_TRUE(limits.window_complete(10));
  EXPECT_FALSE(limits.window_complete(9));
}

TEST(Limits, WithoutAnyLimitThereAreAThousandEpochs) {
  EXPECT_EQ(levin::detail::resolve_limits({}, 1, 0).max_epochs, 1000);
  EXPECT_EQ(levin::detail::resolve_limits({.max_steps = 5}, 1, 0).max_epochs, -1);
  EXPECT_EQ(levin::detail::resolve_limits({.max_epochs = -1}, 1, 0).total_steps(), -1);
}

TEST(Limits, DurationsAreDaysHoursMinutesSeconds) {
  EXPECT_EQ(levin::detail::parse_duration("01:02:03:04"), 93784.0);
  EXPECT_EQ(levin::detail::parse_duration("90"), 90.0);
  EXPECT_EQ(levin::detail::parse_duration(""), std::nullopt);
  for (const char* wrong : {"x", "1:2:3:4:5", "-1", ":"}) {
    EXPECT_EQ(error_id([&] { levin::detail::parse_duration(wrong); }), "trainer.options") << wrong;
  }
}

TEST(Limits, AFractionOfLessThanABatchIsRefused) {
  const auto id = [](const levin::TrainerOptions& options, int64_t train, int64_t val) {
    return error_id([&] { levin::detail::resolve_limits(options, train, val); });
  };
  EXPECT_EQ(id({.limit_train_batches = 0.1}, 5, 5), "trainer.options");
  EXPECT_EQ(id({.limit_val_batches = 0.1}, 5, 5), "trainer.options");
  EXPECT_EQ(error_id([] { levin::detail::portion_of(5, "limit_test_batches", 0.1); }),
            "trainer.options");
  // What is asked for so is meant.
  EXPECT_EQ(levin::detail::resolve_limits({.limit_train_batches = 0.2}, 5, 0).train_batches, 1);
  EXPECT_EQ(levin::detail::resolve_limits({.limit_train_batches = 0.0}, 5, 0).train_batches, 0);
  EXPECT_EQ(levin::detail::resolve_limits({.limit_val_batches = 0}, 5, 5).val_batches, 0);
  EXPECT_EQ(levin::detail::resolve_limits({.limit_val_batches = 0.1}, 5, 0).val_batches, 0);
  EXPECT_EQ(levin::detail::resolve_limits({.fast_dev_run = 1, .limit_train_batches = 0.1}, 5, 0)
                .train_batches,
            1);
}

TEST(Limits, AnIntervalPastTheEpochIsRefused) {
  levin::TrainerOptions options;
  options.val_check_interval = 11;
  EXPECT_EQ(error_id([&] { levin::detail::resolve_limits(options, 10, 1); }), "trainer.options");
}

}  // namespace
