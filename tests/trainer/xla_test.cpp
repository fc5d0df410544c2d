// Training on XLA devices from end to end: batches of few shapes, runs that go on elsewhere, what
// the log says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <fstream>
#include <set>

#include "levin/data/pad_collate.h"
#include "levin/xla/device/runtime.h"
#include "tests/support/child_process.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/error_of.h"
#include "tests/support/variable.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using levin::data::Sample;
using levin::test::error_of;
using levin::xla::RuntimeReport;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Sentences of 2 to 17 words, short ones first; the class is that of the word which counts most.
Sample words(int64_t index) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(index));
  const auto tokens = torch::randint(1, 40, {2 + index / 5}, generator, torch::kLong);
  return {{"tokens", tokens}, {"y", tokens.max().remainder(3)}};
}

/// The mean of the words' vectors, those of the padding left out, and a class from it.
struct Bag : levin::Module {
  torch::nn::Embedding embed{nullptr};
  torch::nn::Linear head{nullptr};
  Bag() {
    embed = register_module("embed", torch::nn::Embedding(40, 8));
    head = register_module("head", torch::nn::Linear(8, 3));
  }
  at::Tensor scores(const levin::Batch& batch) {
    const auto vectors = embed->forward(batch["tokens"]);
    const auto mask = batch["mask"].unsqueeze(2).to(vectors.scalar_type());
    return head->forward((vectors * mask).sum(1) / mask.sum(1));
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    auto loss = torch::nn::functional::cross_entropy(scores(batch), batch["y"]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_loss", torch::nn::functional::cross_entropy(scores(batch), batch["y"]));
    log("val_acc", levin::metrics::accuracy(scores(batch), batch["y"], {.ignore_index = -100}));
  }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return scores(batch).argmax(1);
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adam({.lr = 1e-2});
  }
};

constexpr int64_t kSentences = 75;  // the last of the batches of 16 has 11

levin::DataLoader sentences(bool pads, int64_t batch_size) {
  const auto dataset = levin::data::samples(
      kSentences, words,
      {.collate = levin::data::pad_collate({.lengths = {6, 12, 17}, .values = {{"tokens", 0}}})});
  levin::DataLoaderOptions options = {.batch_size = batch_size};
  if (pads) {
    options.pad_last_batch = true;
    options.padding_values = {{"y", -100}};
  }
  return {dataset, options};
}

levin::TrainerOptions on_xla(const std::string& root, int64_t devices, int64_t epochs) {
  levin::TrainerOptions options = quiet(root);
  options.accelerator = "xla";
  options.pjrt_plugin = "cpu";
  options.devices = devices;
  options.max_epochs = epochs;
  options.num_sanity_val_steps = 0;
  return options;
}

struct Fitted {
  std::shared_ptr<Bag> net;
  std::vector<Recorder::Row> rows;
  RuntimeReport report;
  std::vector<std::string> refusals;
};

Fitted fit_bag(levin::TrainerOptions options, bool pads, int64_t batch_size) {
  const auto recorder = std::make_shared<Recorder>();
  options.logger = recorder;
  options.log_every_n_steps = 1;
  levin::seed_everything(4);
  Fitted fitted{.net = std::make_shared<Bag>()};
  levin::Trainer trainer(options);
  trainer.fit(fitted.net, sentences(pads, batch_size), sentences(pads, batch_size));
  fitted.rows = recorder->rows;
  fitted.refusals = trainer.compile_report().refusals;
  if (const auto runtime = levin::xla::Runtime::current()) fitted.report = runtime->report();
  fitted.net->to(torch::kCPU);
  return fitted;
}

void expect_same_rows(const std::vector<Recorder::Row>& rows,
                      const std::vector<Recorder::Row>& wanted) {
  ASSERT_EQ(rows.size(), wanted.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].name, wanted[i].name);
    EXPECT_NEAR(rows[i].value, wanted[i].value, 1e-5) << rows[i].name << " of " << rows[i].step;
  }
}

/// Added samples change neither weights nor logged means.
TEST(TrainerPads, EqualToNoPadding) {
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.path());
  options.accelerator = "cpu";
  options.max_epochs = 3;
  const Fitted padded = fit_bag(options, true, 16), plain = fit_bag(options, false, 16);
  expect_same_rows(padded.rows, plain.rows);
  for (size_t i = 0; i < plain.net->parameters().size(); ++i) {
    EXPECT_TRUE(
        torch::allclose(padded.net->parameters()[i], plain.net->parameters()[i], 1e-5, 1e-6));
  }
}

TEST(TrainerPads, PredictsNothingForAddedSamples) {
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.path());
  options.accelerator = "cpu";
  levin::seed_everything(4);
  const auto net = std::make_shared<Bag>();
  const auto plain = levin::Trainer(options).predict(net, sentences(false, 16));
  const auto padded = levin::Trainer(options).predict(net, sentences(true, 16));
  EXPECT_TRUE(torch::equal(torch::cat(padded), torch::cat(plain)));
}

/// Notes after each epoch what has been compiled until then.
struct CountPrograms : levin::Callback {
  std::vector<size_t> counts;
  std::string state_key() const override { return "count_programs"; }
  void on_train_epoch_end(levin::Trainer& trainer, levin::Module&) override {
    counts.push_back(trainer.accelerator().xla()->report().programs.size());
  }
};

/// Three lengths and one batch size: a program each for training and for evaluation, whatever else
/// is new to the first two epochs.
TEST(TrainerOnXla, CompilesAsOftenAsThereAreLengths) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.path());
  options.accelerator = "cpu";
  options.max_epochs = 6;
  const Fitted wanted = fit_bag(options, false, 16);
  options = on_xla(scratch.path(), 2, 6);
  const auto count = std::make_shared<CountPrograms>();
  options.callbacks.push_back(count);
  const Fitted fitted = fit_bag(options, true, 8);
  expect_same_rows(fitted.rows, wanted.rows);
  const int64_t steps = std::ranges::count_if(
      fitted.report.programs, [](const auto& program) { return program.num_operators > 12; });
  EXPECT_EQ(steps, 2 * 3) << levin::xla::metrics_report();
  EXPECT_EQ(count->counts[1], count->counts.back());
  EXPECT_EQ(fitted.report.host_fallbacks, 0);
  EXPECT_GT(fitted.report.executions, 50);
}

/// A loader's batch size is that of a device, and there are two of XLA's.
int64_t batch_size(const levin::TrainerOptions& options) {
  return options.accelerator == "xla" ? 8 : 16;
}

/// The weights after the epochs of both, the later ones trained by `then`.
std::vector<at::Tensor> resumed(const levin::TrainerOptions& first, levin::TrainerOptions then) {
  fit_bag(first, false, batch_size(first));
  then.ckpt_path = "last";
  return fit_bag(then, false, batch_size(then)).net->parameters();
}

/// Checkpoints are those of every other strategy.
TEST(TrainerOnXla, GoesOnOnTheCpuAndTheCpuOnXla) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch alone, there, back;
  const auto on_cpu = [](const Scratch& scratch, int64_t epochs) {
    levin::TrainerOptions options = quiet(scratch.path());
    options.accelerator = "cpu";
    options.max_epochs = epochs;
    return options;
  };
  const auto wanted = fit_bag(on_cpu(alone, 2), false, 16).net->parameters();
  const auto to_cpu = resumed(on_xla(there.path(), 2, 1), on_cpu(there, 2));
  const auto to_xla = resumed(on_cpu(back, 1), on_xla(back.path(), 2, 2));
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(torch::allclose(to_cpu[i], wanted[i], 1e-4, 1e-5)) << i;
    EXPECT_TRUE(torch::allclose(to_xla[i], wanted[i], 1e-4, 1e-5)) << i;
  }
}

TEST(TrainerOnXla, AccumulatesAsTheCpuDoes) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  levin::TrainerOptions there = on_xla(scratch.path(), 2, 6), here = quiet(scratch.path());
  here.accelerator = "cpu";
  here.max_epochs = 6;
  for (levin::TrainerOptions* options : {&there, &here}) options->accumulate_grad_batches = 2;
  const Fitted fitted = fit_bag(there, true, 8), wanted = fit_bag(here, false, 16);
  EXPECT_THAT(fitted.refusals, ::testing::IsEmpty());
  expect_same_rows(fitted.rows, wanted.rows);
}

/// How many samples its steps see.
struct Sizes : levin::Module {
  torch::nn::Linear net{nullptr};
  std::set<int64_t> in_training, in_validation;
  Sizes() { net = register_module("net", torch::nn::Linear(6, 3)); }
  at::Tensor loss_of(const levin::Batch& batch) {
    return torch::nn::functional::cross_entropy(net->forward(batch["x"]), batch["y"]);
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    in_training.insert(batch["x"].size(0));
    return loss_of(batch);
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    in_validation.insert(batch["x"].size(0));
    log("val_loss", loss_of(batch));
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

/// One device of a CPU unless more are asked for; a step is then called once for all of them.
TEST(TrainerOnXla, AStepSeesTheBatchesOfTheDevicesThatWereAskedFor) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  for (const auto& [devices, wanted] : {std::pair{0, 8}, {1, 8}, {2, 16}}) {
    const auto net = std::make_shared<Sizes>();
    const levin::DataLoader loader(dataset(64), {.batch_size = 8});
    levin::Trainer trainer(on_xla(scratch.path(), devices, 1));
    trainer.fit(net, loader, loader);
    EXPECT_EQ(trainer.accelerator().xla()->num_devices(), std::max(1, devices));
    EXPECT_THAT(net->in_training, ::testing::ElementsAre(wanted));
    EXPECT_THAT(net->in_validation, ::testing::ElementsAre(wanted));
    EXPECT_EQ(trainer.global_step(), 64 / wanted);
  }
}

/// What it gives is transposed in place.
struct BatchesFirst : levin::Module {
  torch::nn::GRU gru{nullptr};
  torch::nn::RNN rnn{nullptr};
  BatchesFirst() {
    gru = register_module(
        "gru",
        torch::nn::GRU(
            torch::nn::GRUOptions(2, 3).num_layers(2).batch_first(true).bidirectional(true)));
    rnn = register_module("rnn", torch::nn::RNN(torch::nn::RNNOptions(6, 3).batch_first(true)));
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    const auto words = std::get<0>(gru->forward(batch["x"].view({-1, 3, 2})));
    const auto last = std::get<0>(rnn->forward(words)).select(1, 2);
    return torch::nn::functional::cross_entropy(last, batch["y"]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

TEST(TrainerOnXla, TrainsRecurrentLayersOfBatchesFirst) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  const auto trained = [](const levin::TrainerOptions& options) {
    levin::seed_everything(2);
    const auto net = std::make_shared<BatchesFirst>();
    levin::Trainer trainer(options);
    trainer.fit(net, levin::DataLoader(dataset(64), {.batch_size = 8}));
    net->to(torch::kCPU);
    return net->parameters();
  };
  const auto there = trained(on_xla(scratch.path(), 1, 2));
  levin::TrainerOptions options = quiet(scratch.path());
  options.accelerator = "cpu";
  options.max_epochs = 2;
  const auto here = trained(options);
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_TRUE(torch::allclose(there[i], here[i], 1e-5, 1e-6)) << i;
  }
}

/// The gradient of its weights is a view of what a product gave.
struct Folded : levin::Module {
  at::Tensor weight;
  Folded() { weight = register_parameter("weight", torch::randn({18})); }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    return torch::nn::functional::cross_entropy(batch["x"].mm(weight.view({6, 3})), batch["y"]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

TEST(TrainerOnXla, AccumulatesGradientsThatAreViews) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  const auto train = [&](levin::TrainerOptions options) {
    options.accumulate_grad_batches = 4;
    options.max_epochs = 5;
    levin::seed_everything(2);
    const auto net = std::make_shared<Folded>();
    levin::Trainer trainer(options);
    trainer.fit(net, levin::DataLoader(dataset(64), {.batch_size = 8}));
    EXPECT_THAT(trainer.compile_report().refusals, ::testing::IsEmpty());
    return net->weight.detach().cpu();
  };
  const at::Tensor there = train(on_xla(scratch.path(), 1, 5));
  levin::TrainerOptions here = quiet(scratch.path());
  here.accelerator = "cpu";
  EXPECT_TRUE(torch::allclose(there, train(here), 1e-5, 1e-6));
}

/// In bfloat16 sums in another order are other sums: near to those of the CPU, and to float32's.
TEST(TrainerOnXla, LearnsInHalfPrecision) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  for (const auto& [precision, keeps_master] :
       {std::pair{"bf16-mixed", false}, {"bf16-true", true}}) {
    levin::TrainerOptions there = on_xla(scratch.path() / precision, 2, 4);
    levin::TrainerOptions here = quiet(scratch.path() / precision);
    here.accelerator = "cpu";
    here.max_epochs = 4;
    for (levin::TrainerOptions* options : {&there, &here}) {
      options->precision = precision;
      options->master_weights = keeps_master;
    }
    const Fitted fitted = fit_bag(there, true, 8), wanted = fit_bag(here, false, 16);
    ASSERT_EQ(fitted.rows.size(), wanted.rows.size());
    for (size_t i = 0; i < wanted.rows.size(); ++i) {
      if (wanted.rows[i].name == "val_acc") continue;  // one sample more or less
      EXPECT_NEAR(fitted.rows[i].value, wanted.rows[i].value, 0.03) << wanted.rows[i].name;
    }
    EXPECT_EQ(fitted.report.host_fallbacks, 0) << precision;
    EXPECT_THAT(fitted.refusals, ::testing::IsEmpty()) << precision;
    const auto dtype = keeps_master ? torch::kBFloat16 : torch::kFloat;
    EXPECT_EQ(fitted.net->embed->weight.scalar_type(), dtype);
  }
}

TEST(TrainerOnXla, WhatAReplayCannotDoIsAnError) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  levin::TrainerOptions scaled = on_xla(scratch.path(), 1, 1);
  levin::TrainerOptions budget = scaled;
  scaled.compile = "replay";
  levin::TrainerOptions guarded = scaled;
  scaled.precision = "16-mixed";
  guarded.loss_guard.nan_policy = "skip";
  budget.activation_memory_budget = 0.5;
  EXPECT_THAT(error_of([&] { fit_bag(scaled, false, 16); }),
              AllOf(HasSubstr("accelerator.compile: 16-mixed"), HasSubstr("or --compile no")));
  EXPECT_THAT(error_of([&] { fit_bag(guarded, false, 16); }),
              AllOf(HasSubstr("accelerator.compile: --nan-policy"), HasSubstr("or --compile no")));
  EXPECT_THAT(error_of([&] { fit_bag(budget, false, 16); }),
              HasSubstr("on XLA use levin::activation_checkpoint"));
}

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
    options.loss_guard.nan_policy = "skip";
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

TEST(TrainerOnXla, ScalesLossesAsTheCpuDoes) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  levin::TrainerOptions there = on_xla(scratch.path(), 1, 4), here = quiet(scratch.path());
  here.accelerator = "cpu";
  here.max_epochs = 4;
  for (levin::TrainerOptions* options : {&there, &here}) options->precision = "16-mixed";
  const Fitted fitted = fit_bag(there, true, 16), wanted = fit_bag(here, true, 16);
  ASSERT_EQ(fitted.rows.size(), wanted.rows.size());
  for (size_t i = 0; i < wanted.rows.size(); ++i) {
    if (wanted.rows[i].name == "val_acc") continue;
    EXPECT_NEAR(fitted.rows[i].value, wanted.rows[i].value, 0.01) << wanted.rows[i].name;
  }
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
    there.compile = compile;
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

/// Run by the next test in a process of its own.
TEST(TrainerOnXla, DISABLED_FitsHere) {
  const Scratch scratch;
  const RuntimeReport report = fit_bag(on_xla(scratch.path(), 2, 2), true, 8).report;
  std::printf("compiled %ld read %ld\n", report.compilations, report.disk_cache_hits);
}

/// Run by the next test: what autograd's engine counts as devices at its first backward pass knows
/// nothing of XLA.
TEST(TrainerOnXla, DISABLED_AfterAnotherBackward) {
  const auto x = torch::ones(3, torch::requires_grad());
  x.square().sum().backward();
  const Scratch scratch;
  EXPECT_GT(fit_bag(on_xla(scratch.path(), 2, 1), true, 8).report.executions, 5);
}

TEST(TrainerOnXla, TrainsWhereAutogradHasRunBefore) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  EXPECT_EQ(
      levin::test::run_in_own_process("*DISABLED_AfterAnotherBackward", scratch.path() / "log"), 0);
}

TEST(TrainerOnXla, ASecondProcessCompilesNothing) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  const levin::test::Variable cache("LEVIN_XLA_CACHE", (scratch.path() / "cache").string());
  const auto output_of_a_process = [&](const char* name) {
    EXPECT_EQ(levin::test::run_in_own_process("*DISABLED_FitsHere", scratch.path() / name), 0);
    std::ifstream file(scratch.path() / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_THAT(output_of_a_process("first"), HasSubstr("read 0\n"));
  EXPECT_THAT(output_of_a_process("second"), HasSubstr("compiled 0 read"));
}

}  // namespace
