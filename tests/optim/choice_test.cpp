// Optimizers and schedules chosen by name are those that the functions of these names describe.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/options/read_options.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "tests/support/error_of.h"

namespace {
namespace choice {

using levin::OptimizerConfig;
using levin::optim::LrSchedulerOptions;
using levin::optim::OptimizerOptions;
using levin::test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A matrix after four steps.
at::Tensor trained(const OptimizerConfig& config) {
  at::Tensor w = torch::linspace(-1, 1, 6).reshape({2, 3}).requires_grad_();
  const auto optimizer = levin::optim::build_optimizer(config, {{"w", w}});
  for (int i = 0; i < 4; ++i) {
    w.mutable_grad() = (w.detach() * 3 + 0.5 * i) * (i % 2 == 0 ? 1.0 : -0.7);
    optimizer->step();
  }
  return w.detach();
}

struct OptimizerCase {
  std::string name;
  std::map<std::string, std::string> options;
  OptimizerConfig wanted;
};

namespace optim = levin::optim;

std::vector<OptimizerCase> optimizers() {
  return {
      {"sgd",
       {{"lr", "0.1"}, {"momentum", "0.9"}, {"weight_decay", "0.01"}, {"nesterov", "true"}},
       optim::sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true})},
      {"sgd",
       {{"momentum", "0.9"}, {"dampening", "0.5"}, {"maximize", "true"}},
       optim::sgd({.momentum = 0.9, .dampening = 0.5, .maximize = true})},
      {"adam",
       {{"lr", "0.1"}, {"betas", "0.8,0.9"}, {"eps", "1e-3"}, {"amsgrad", "true"}},
       optim::adam({.lr = 0.1, .betas = {0.8, 0.9}, .eps = 1e-3, .amsgrad = true})},
      {"AdamW",
       {{"lr", "3e-4"}, {"weight_decay", "0.1"}},
       optim::adamw({.lr = 3e-4, .weight_decay = 0.1})},
      {"torch.optim.AdamW", {{"maximize", "1"}}, optim::adamw({.maximize = true})},
      {"NAdam",
       {{"momentum_decay", "0.1"}, {"decoupled_weight_decay", "true"}, {"weight_decay", "0.1"}},
       optim::nadam({.weight_decay = 0.1, .momentum_decay = 0.1, .decoupled_weight_decay = true})},
      {"radam",
       {{"weight_decay", "0.1"}, {"decoupled_weight_decay", "true"}},
       optim::radam({.weight_decay = 0.1, .decoupled_weight_decay = true})},
      {"lion",
       {{"betas", "0.5,0.6"}, {"weight_decay", "0.1"}},
       optim::lion({.betas = {0.5, 0.6}, .weight_decay = 0.1})},
      {"adafactor",
       {{"lr", "0.1"},
        {"relative_step", "false"},
        {"eps", "0.5,1e-2"},
        {"clip_threshold", "0.1"},
        {"decay_rate", "-0.5"},
        {"beta1", "0.9"},
        {"scale_parameter", "false"}},
       optim::adafactor({.lr = 0.1,
                         .eps = {0.5, 1e-2},
                         .clip_threshold = 0.1,
                         .decay_rate = -0.5,
                         .beta1 = 0.9,
                         .scale_parameter = false,
                         .relative_step = false})},
      {"adafactor", {{"warmup_init", "true"}}, optim::adafactor({.warmup_init = true})},
      {"muon",
       {{"lr", "0.1"},
        {"ns_steps", "3"},
        {"ns_coefficients", "3,-4,2"},
        {"adjust_lr_fn", "match_rms_adamw"},
        {"nesterov", "false"}},
       optim::muon({.lr = 0.1,
                    .nesterov = false,
                    .ns_coefficients = {3, -4, 2},
                    .ns_steps = 3,
                    .adjust_lr_fn = "match_rms_adamw"})},
      {"RMSprop",
       {{"alpha", "0.5"}, {"centered", "true"}, {"momentum", "0.5"}},
       optim::rmsprop({.alpha = 0.5, .momentum = 0.5, .centered = true})},
      {"adagrad",
       {{"lr_decay", "0.1"}, {"initial_accumulator_value", "0.5"}},
       optim::adagrad({.lr_decay = 0.1, .initial_accumulator_value = 0.5})},
  };
}

TEST(OptimizerChoice, TrainsAsTheFunctionOfThatName) {
  for (const OptimizerCase& one : optimizers()) {
    const OptimizerConfig config = OptimizerOptions{one.name, one.options}.config();
    EXPECT_EQ(config.name(), one.wanted.name());
    EXPECT_TRUE(torch::equal(trained(config), trained(one.wanted))) << one.name;
    // Each option changes the steps, so none is dropped.
    for (const auto& [name, value] : one.options) {
      auto fewer = one.options;
      fewer.erase(name);
      at::Tensor without;
      try {
        without = trained(OptimizerOptions{one.name, fewer}.config());
      } catch (const levin::Error&) {
        continue;  // nesterov without momentum
      }
      EXPECT_FALSE(torch::equal(without, trained(config))) << one.name << " without " << name;
    }
  }
}

TEST(OptimizerChoice, HasTheOptionsOfTheDescription) {
  const OptimizerConfig config = OptimizerOptions{
      "adamw",
      {{"decay_only_weights", "true"}, {"master_weights", "true"}, {"frequency", "3"}},
      {"cosine",
       {{"warmup_steps", "10"}}}}.config();
  EXPECT_TRUE(config.decays_only_weights());
  EXPECT_TRUE(config.has_master_weights());
  EXPECT_EQ(config.frequency(), 3);
  EXPECT_EQ(config.schedule()->name, "cosine");
  const OptimizerConfig plain = OptimizerOptions{"adamw"}.config();
  EXPECT_FALSE(plain.decays_only_weights() || plain.has_master_weights() || plain.schedule());
}

struct ScheduleCase {
  std::string name;
  std::map<std::string, std::string> options;
  levin::Schedule wanted;
};

std::vector<ScheduleCase> schedules() {
  return {
      {"constant_with_warmup", {{"warmup_steps", "5"}}, optim::constant({.warmup_steps = 5})},
      {"linear",
       {{"warmup_steps", "5"}, {"total_steps", "15"}, {"end_factor", "0.2"}},
       optim::linear({.warmup_steps = 5, .total_steps = 15, .end_factor = 0.2})},
      {"cosine",
       {{"warmup_steps", "5"}, {"total_steps", "15"}, {"num_cycles", "1.5"}, {"min_factor", "0.1"}},
       optim::cosine({.warmup_steps = 5, .total_steps = 15, .num_cycles = 1.5, .min_factor = 0.1})},
      {"torch.optim.lr_scheduler.StepLR",
       {{"step_size", "4"}, {"gamma", "0.5"}},
       optim::step({.step_size = 4, .gamma = 0.5})},
      {"multi_step",
       {{"milestones", "3,7"}, {"gamma", "0.5"}, {"warmup_steps", "2"}},
       optim::multi_step({.milestones = {3, 7}, .gamma = 0.5, .warmup_steps = 2})},
      {"ExponentialLR", {{"gamma", "0.5"}}, optim::exponential({.gamma = 0.5})},
      {"polynomial",
       {{"power", "2"}, {"total_steps", "12"}, {"end_factor", "0.1"}},
       optim::polynomial({.total_steps = 12, .end_factor = 0.1, .power = 2})},
      {"OneCycleLR",
       {{"total_steps", "15"},
        {"pct_start", "0.5"},
        {"anneal_strategy", "linear"},
        {"div_factor", "5"},
        {"final_div_factor", "10"},
        {"three_phase", "true"}},
       optim::one_cycle({.total_steps = 15,
                         .pct_start = 0.5,
                         .anneal_strategy = "linear",
                         .div_factor = 5,
                         .final_div_factor = 10,
                         .three_phase = true})},
      {"cosine_with_restarts",
       {{"num_cycles", "3"}, {"total_steps", "15"}},
       optim::cosine_with_restarts({.total_steps = 15, .num_cycles = 3})},
      {"CosineAnnealingWarmRestarts",
       {{"t_0", "3"}, {"t_mult", "2"}, {"min_factor", "0.1"}},
       optim::cosine_warm_restarts({.t_0 = 3, .t_mult = 2, .min_factor = 0.1})},
      {"warmup_stable_decay",
       {{"warmup_steps", "4"},
        {"decay_steps", "5"},
        {"stable_steps", "3"},
        {"warmup_type", "cosine"},
        {"decay_type", "1-sqrt"},
        {"min_factor", "0.1"}},
       optim::warmup_stable_decay({.warmup_steps = 4,
                                   .decay_steps = 5,
                                   .stable_steps = 3,
                                   .warmup_type = "cosine",
                                   .decay_type = "1-sqrt",
                                   .min_factor = 0.1})},
      {"inverse_sqrt",
       {{"warmup_steps", "3"}, {"timescale", "7"}},
       optim::inverse_sqrt({.warmup_steps = 3, .timescale = 7})},
  };
}

TEST(ScheduleChoice, IsTheFunctionOfThatName) {
  const auto factors = [](const levin::Schedule& schedule) {
    std::vector<double> values;
    for (int64_t step = 0; step < 20; ++step) values.push_back(schedule.factor(step, 30));
    return values;
  };
  for (const ScheduleCase& one : schedules()) {
    const auto schedule = LrSchedulerOptions{one.name, one.options}.schedule();
    ASSERT_TRUE(schedule.has_value()) << one.name;
    EXPECT_EQ(schedule->name, one.wanted.name);
    EXPECT_EQ(factors(*schedule), factors(one.wanted)) << one.name;
    EXPECT_EQ(schedule->interval, one.wanted.interval);
    for (const auto& [name, value] : one.options) {
      auto fewer = one.options;
      fewer.erase(name);
      EXPECT_NE(factors(*LrSchedulerOptions{one.name, fewer}.schedule()), factors(one.wanted))
          << one.name << " without " << name;
    }
  }
}

TEST(ScheduleChoice, APlateauAndTheUnit) {
  const auto plateau = LrSchedulerOptions{
      "ReduceLROnPlateau",
      {{"monitor", "val_loss"},
       {"mode", "max"},
       {"factor", "0.5"},
       {"patience", "2"},
       {"threshold", "0.25"},
       {"threshold_mode", "abs"},
       {"cooldown", "3"},
       {"min_lr", "0.125"},
       {"eps", "0.0625"},
       {"strict",
        "false"}}}.schedule();
  ASSERT_TRUE(plateau && plateau->plateau);
  const levin::PlateauOptions& options = *plateau->plateau;
  EXPECT_EQ(options.monitor, "val_loss");
  EXPECT_EQ(options.mode, "max");
  EXPECT_EQ(options.factor, 0.5);
  EXPECT_EQ(options.patience, 2);
  EXPECT_EQ(options.threshold, 0.25);
  EXPECT_EQ(options.threshold_mode, "abs");
  EXPECT_EQ(options.cooldown, 3);
  EXPECT_EQ(options.min_lr, 0.125);
  EXPECT_EQ(options.eps, 0.0625);
  EXPECT_FALSE(options.strict);
  EXPECT_EQ(plateau->interval, optim::reduce_on_plateau({.monitor = "x"}).interval);

  using Interval = levin::Schedule::Interval;
  const auto by_epoch =
      LrSchedulerOptions{"step", {{"interval", "epoch"}, {"frequency", "2"}}}.schedule();
  EXPECT_EQ(by_epoch->interval, Interval::kEpoch);
  EXPECT_EQ(by_epoch->frequency, 2);
  const auto by_step = LrSchedulerOptions{"step", {{"frequency", "3"}}}.schedule();
  EXPECT_EQ(by_step->interval, Interval::kStep);
  EXPECT_EQ(by_step->frequency, 3);
  EXPECT_EQ(LrSchedulerOptions{}.schedule(), std::nullopt);
}

TEST(OptimizerChoice, MistakesAreNamed) {
  const auto said = [](const OptimizerOptions& options) {
    return error_of([&] { static_cast<void>(options.config()); });
  };
  EXPECT_THAT(said({}), StartsWith("optim.choice: got no optimizer"));
  EXPECT_THAT(said({"adamv"}),
              StartsWith("optim.choice: got optimizer 'adamv', wanted sgd, adam,"));
  EXPECT_THAT(said({"adamv"}), HasSubstr("did you mean adam"));
  EXPECT_THAT(said({"torch.optim.LBFGS"}), StartsWith("optim.choice: "));
  EXPECT_THAT(said({"torch.optim.Adafactor"}), HasSubstr("is that of transformers"));
  EXPECT_THAT(said({"adamw", {{"momentum", "0.9"}}}),
              StartsWith("optim.choice: adamw has no option 'momentum', only lr, betas, eps, "
                         "weight_decay, maximize, amsgrad"));
  EXPECT_THAT(said({"adamw", {{"lr", "x"}}}), StartsWith("base.options.value: lr of adamw: "));
  EXPECT_THAT(said({"adamw", {{"betas", "0.9"}}}), HasSubstr("wanted 2 numbers"));
  EXPECT_THAT(said({"adamw", {{"frequency", "x"}}}),
              StartsWith("base.options.value: optimizer.frequency: "));
  EXPECT_THAT(said({"adamw", {}, {"cosin"}}),
              AllOf(StartsWith("optim.choice: got lr_scheduler 'cosin'"),
                    HasSubstr("did you mean cosine?")));
  EXPECT_THAT(said({"adamw", {}, {"cosine", {{"gamma", "1"}}}}),
              StartsWith("optim.choice: cosine has no option 'gamma'"));
  EXPECT_THAT(said({"adamw", {}, {"", {{"gamma", "1"}}}}),
              StartsWith("optim.choice: got lr_scheduler.gamma without lr_scheduler"));
  EXPECT_THAT(said({"adamw", {}, {"cosine", {{"interval", "batch"}}}}),
              StartsWith("optim.choice: got lr_scheduler.interval = 'batch'"));
  EXPECT_THAT(said({"adamw", {}, {"cosine", {{"warmup_steps", "-1"}}}}),
              StartsWith("optim.schedule.options: "));
}

TEST(OptimizerChoice, FlagsReadItAndRecordsHaveIt) {
  OptimizerOptions options;
  const auto walk = [&](levin::FieldVisitor& field) { options.fields(field); };
  levin::detail::read_options(
      {"--optimizer", "AdamW", "--optimizer.lr=3e-4", "--optimizer.betas", "0.9,0.95",
       "--lr-scheduler", "cosine", "--lr-scheduler.warmup-steps", "100"},
      {}, walk);
  EXPECT_EQ(options.name, "AdamW");
  EXPECT_EQ(options.config().lr(), 3e-4);
  const std::map<std::string, std::string> wanted = {{"optimizer", "AdamW"},
                                                     {"optimizer.lr", "0.0003"},
                                                     {"optimizer.betas", "0.9,0.95"},
                                                     {"lr_scheduler", "cosine"},
                                                     {"lr_scheduler.warmup_steps", "100"}};
  EXPECT_EQ(levin::options_as_text(options), wanted);
  OptimizerOptions again;
  levin::set_options(again, wanted);
  EXPECT_EQ(again.options, options.options);
  EXPECT_EQ(again.lr_scheduler.options, options.lr_scheduler.options);
  const auto said = [&](std::vector<std::string> words) {
    return error_of([&] { levin::detail::read_options(words, {}, walk); });
  };
  EXPECT_THAT(said({"--optimizer.lr", "fast"}),
              StartsWith("base.options.value: optimizer.lr of the command line: got 'fast'"));
  EXPECT_THAT(said({"--optimizer.nesterov", "maybe"}), StartsWith("base.options.value: "));
  EXPECT_THAT(said({"--optimizer.ns_steps", "1.5"}), StartsWith("base.options.value: "));
  EXPECT_THAT(said({"--optimizer.betas", "a"}), StartsWith("base.options.value: "));
  EXPECT_THAT(said({"--optimizer.learning-rate", "1"}), StartsWith("base.options.unknown: "));
}

/// Every option of an optimizer or a schedule has a flag.
TEST(OptimizerChoice, EveryOptionOfTheCasesHasAFlag) {
  OptimizerOptions options;
  class Names : public levin::FieldVisitor {
   public:
    std::set<std::string> all;

   protected:
    void visit(levin::Field field) override { all.insert(field.name); }
  } names;
  options.fields(names);
  for (const OptimizerCase& one : optimizers()) {
    for (const auto& [name, value] : one.options) {
      EXPECT_TRUE(names.all.contains("optimizer." + name)) << name;
    }
  }
  for (const ScheduleCase& one : schedules()) {
    for (const auto& [name, value] : one.options) {
      EXPECT_TRUE(names.all.contains("lr_scheduler." + name)) << name;
    }
  }
}

}  // namespace choice
}  // namespace
