// Steps that are called on XLA devices: what the host decides in each, and how often they compile.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/xla/device/runtime.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/error_of.h"
#include "tests/trainer/on_xla.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using levin::xla::RuntimeReport;

/// Steps that the host decides about, each by what it reads in that step.
struct Decides : levin::Module {
  enum class How { kEqual, kFlag, kCoin, kIndex, kLossSoFar, kWarmUp, kMember };
  How how;
  torch::nn::Linear net{nullptr};
  double last_loss = 0;
  int64_t calls = 0;
  at::Generator coins = at::make_generator<at::CPUGeneratorImpl>(uint64_t{3});

  explicit Decides(How how) : how(how) { net = register_module("net", torch::nn::Linear(6, 3)); }

  bool decision(const levin::Batch& batch, int64_t index) {
    switch (how) {
      case How::kEqual:
        return torch::equal(batch["y"], batch["z"]);
      case How::kFlag:
        return batch["flag"].select(0, 0).item<bool>();
      case How::kCoin:
        return torch::rand({1}, coins).item<float>() < 0.5F;
      case How::kIndex:
        return index % 3 == 1;
      case How::kLossSoFar:
        return last_loss > 1.1;
      case How::kMember:
        return calls % 4 < 2;
      case How::kWarmUp:
        return true;
    }
    return false;
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    ++calls;
    const double factor = how == How::kWarmUp ? std::min(1.0, 0.05 * double(calls)) : 0.5;
    const at::Tensor scores = net->forward(batch["x"]);
    at::Tensor loss = torch::nn::functional::cross_entropy(scores, batch["y"]);
    if (decision(batch, index)) loss = loss + factor * scores.square().mean();
    if (how == How::kLossSoFar) last_loss = loss.item<double>();
    log("loss", loss, {.on_step = true, .on_epoch = true});
    log("calls", static_cast<double>(calls));
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adam({.lr = 0.05});
  }
};

std::shared_ptr<levin::Dataset> decisive() {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{5});
  const auto x = torch::randn({96, 6}, generator);
  const auto y = x.sum(1).gt(0).to(torch::kLong);
  const auto flag = torch::arange(96).div(8, "floor").remainder(3).eq(1);
  return levin::data::tensors(
      {{"x", x}, {"y", y}, {"z", torch::where(flag, y, y + 1)}, {"flag", flag}});
}

using DecisionCase = std::pair<const char*, Decides::How>;

class DecisionsOnXla : public testing::TestWithParam<DecisionCase> {};

/// A step is called each time, and each time with what is there then.
TEST_P(DecisionsOnXla, AreThoseOfTheCpu) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  RuntimeReport report;
  const auto train = [&](levin::TrainerOptions options) {
    options.max_epochs = 2;
    const auto recorder = std::make_shared<Recorder>();
    options.logger = recorder;
    options.log_every_n_steps = 1;
    levin::seed_everything(2);
    const auto net = std::make_shared<Decides>(GetParam().second);
    levin::Trainer trainer(options);
    trainer.fit(net, levin::DataLoader(decisive(), {.batch_size = 8}));
    if (const auto runtime = levin::xla::Runtime::current()) report = runtime->report();
    EXPECT_EQ(net->calls, 24);
    net->to(torch::kCPU);
    return std::pair(recorder->rows, net->net->weight.detach());
  };
  const auto [rows, weight] = train(on_xla(scratch.path(), 1, 2));
  levin::TrainerOptions here = quiet(scratch.path());
  here.accelerator = "cpu";
  const auto [wanted_rows, wanted] = train(here);
  expect_same_rows(rows, wanted_rows);
  EXPECT_TRUE(torch::allclose(weight, wanted, 1e-4, 1e-5));
  EXPECT_LE(report.programs.size(), 8U) << levin::xla::metrics_report();
}

INSTANTIATE_TEST_SUITE_P(Table, DecisionsOnXla,
                         testing::Values(DecisionCase{"OfEqualTensors", Decides::How::kEqual},
                                         DecisionCase{"OfAFlagOfTheBatch", Decides::How::kFlag},
                                         DecisionCase{"OfACoin", Decides::How::kCoin},
                                         DecisionCase{"OfTheBatchsIndex", Decides::How::kIndex},
                                         DecisionCase{"OfTheLastLoss", Decides::How::kLossSoFar},
                                         DecisionCase{"OfAFactorThatWarmsUp",
                                                      Decides::How::kWarmUp},
                                         DecisionCase{"OfAMember", Decides::How::kMember}),
                         [](const auto& info) { return info.param.first; });

/// Scaled and guarded steps look at gradients and losses, as on the CPU.
TEST(TrainerOnXla, GuardsLossesAsTheCpuDoes) {
  LEVIN_NEEDS_CPU_PLUGIN();
  struct Breaks : Decides {
    Breaks() : Decides(How::kIndex) {}
    at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
      const at::Tensor loss = Decides::training_step(batch, index);
      return index == 4 ? loss * std::numeric_limits<double>::quiet_NaN() : loss;
    }
  };
  const Scratch scratch;
  const auto trained = [&](levin::TrainerOptions options) {
    options.engine.loss_guard.nan_policy = "skip";
    options.max_epochs = 2;
    levin::seed_everything(2);
    const auto net = std::make_shared<Breaks>();
    levin::Trainer trainer(options);
    trainer.fit(net, levin::DataLoader(decisive(), {.batch_size = 8}));
    net->to(torch::kCPU);
    return net->net->weight.detach();
  };
  const at::Tensor there = trained(on_xla(scratch.path(), 1, 2));
  levin::TrainerOptions here = quiet(scratch.path());
  here.accelerator = "cpu";
  EXPECT_TRUE(torch::allclose(there, trained(here), 1e-4, 1e-5));
}

/// A network with all that changes from step to step on the host: rates, counts, draws.
struct Scheduled : Net {
  levin::OptimizerConfig optimizer;
  Scheduled(double dropout, levin::OptimizerConfig config)
      : Net(dropout), optimizer(std::move(config)) {}
  levin::OptimizerConfig configure_optimizers() override {
    return optimizer.schedule(levin::optim::cosine({.warmup_steps = 5}));
  }
};

struct ScheduledCase {
  std::string name;
  std::function<levin::OptimizerConfig()> optimizer;
  double dropout = 0;
  std::optional<double> clip = {};
  int64_t accumulate = 1;
  bool weighs = false;
};

std::ostream& operator<<(std::ostream& out, const ScheduledCase& of) { return out << of.name; }

std::vector<ScheduledCase> scheduled_cases() {
  const auto sgd = [] { return levin::optim::sgd({.lr = 0.1}); };
  const auto momentum = [] { return levin::optim::sgd({.lr = 0.1, .momentum = 0.9}); };
  const auto adam = [] { return levin::optim::adam({.lr = 0.01}); };
  const auto adamw = [] { return levin::optim::adamw({.lr = 0.01}); };
  return {{"Sgd", sgd},
          {"SgdMomentum", momentum},
          {"Adam", adam},
          {"Adamw", adamw},
          {"Dropout", adamw, 0.3},
          {"Clipping", momentum, 0, 0.5},
          {"Accumulation", adamw, 0, {}, 2},
          {"Weights", adam, 0, {}, 2, true}};
}

class ScheduledOnXla : public testing::TestWithParam<ScheduledCase> {};

/// A program for the first step, where momentum begins, and one for the others; a batch within a
/// group has one of its own. Each graph is lowered but once, and nothing is found by chance: the
/// weights are those of the CPU.
TEST_P(ScheduledOnXla, CompileNothingAfterTheirSecondStep) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const ScheduledCase& of = GetParam();
  const Scratch scratch;
  struct Count : levin::Callback {
    std::vector<RuntimeReport> reports;
    std::string state_key() const override { return "count"; }
    void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                            const levin::Batch&, int64_t) override {
      const auto& runtime = trainer.accelerator().xla();
      if (runtime != nullptr) reports.push_back(runtime->report());
    }
  };
  const auto trained = [&](levin::TrainerOptions options, const std::shared_ptr<Count>& count) {
    options.max_epochs = 2;
    options.gradient_clip_val = of.clip;
    options.accumulate_grad_batches = of.accumulate;
    options.callbacks.push_back(count);
    levin::seed_everything(2);
    const auto net = std::make_shared<Scheduled>(of.dropout, of.optimizer());
    net->weigh = of.weighs;
    levin::Trainer trainer(options);
    trainer.fit(net, levin::DataLoader(dataset(160), {.batch_size = 8}));
    if (!of.weighs) {  // by a number of the host, which replay refuses
      EXPECT_THAT(trainer.compile_report().refusals, ::testing::IsEmpty());
    }
    net->to(torch::kCPU);
    return net->parameters();
  };
  levin::TrainerOptions here = quiet(scratch.path());
  here.accelerator = "cpu";
  const auto wanted = trained(here, std::make_shared<Count>());
  for (const std::string compile : {"no", "replay"}) {
    levin::TrainerOptions there = on_xla(scratch.path(), 1, 2);
    there.engine.compile = compile;
    const auto count = std::make_shared<Count>();
    const auto came = trained(there, count);
    ASSERT_EQ(count->reports.size(), 40U);
    const RuntimeReport& second = count->reports[5];
    const RuntimeReport& last = count->reports.back();
    EXPECT_EQ(last.programs.size(), second.programs.size()) << levin::xla::metrics_report();
    // The checkpoint at the end looks at tensors and computes nothing.
    if (compile == "no") {
      EXPECT_LE(last.lowerings, second.lowerings + 1);
    }
    EXPECT_EQ(last.host_fallbacks, 0);
    if (compile == "no" && of.accumulate == 1) {
      EXPECT_EQ(last.executions - second.executions, 34) << "one program a step";
    }
    if (of.dropout > 0) continue;          // draws of its own
    constexpr size_t kBiasBeforeNorm = 1;  // its gradient is 0, and what is left of it rounding
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (i == kBiasBeforeNorm) continue;
      EXPECT_TRUE(torch::allclose(came[i], wanted[i], 1e-3, 1e-4)) << compile << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ScheduledOnXla, testing::ValuesIn(scheduled_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
