// Training on XLA devices from end to end: batches of few shapes, runs that go on elsewhere, what
// the log says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <fstream>
#include <set>

#include "levin/data/loader.h"
#include "levin/xla/device/runtime.h"
#include "tests/support/child_process.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/error_of.h"
#include "tests/support/variable.h"
#include "tests/trainer/on_xla.h"
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
  const std::pair<levin::Devices, int> cases[] = {{"auto", 8}, {1, 8}, {2, 16}};
  for (const auto& [devices, wanted] : cases) {
    const auto net = std::make_shared<Sizes>();
    const levin::DataLoader loader(dataset(64), {.batch_size = 8});
    levin::Trainer trainer(on_xla(scratch.path(), devices, 1));
    trainer.fit(net, loader, loader);
    EXPECT_EQ(trainer.accelerator().xla()->num_devices(), std::max<int64_t>(1, devices.count()));
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
      options->engine.master_weights = keeps_master;
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
  scaled.engine.compile = "replay";
  levin::TrainerOptions guarded = scaled;
  scaled.precision = "16-mixed";
  guarded.engine.loss_guard.nan_policy = "skip";
  budget.engine.activation_memory_budget = 0.5;
  EXPECT_THAT(error_of([&] { fit_bag(scaled, false, 16); }),
              AllOf(HasSubstr("accelerator.compile: 16-mixed"), HasSubstr("or --compile no")));
  EXPECT_THAT(
      error_of([&] { fit_bag(guarded, false, 16); }),
      AllOf(HasSubstr("accelerator.compile: --nan-policy"), HasSubstr("or set --compile no")));
  EXPECT_THAT(error_of([&] { fit_bag(budget, false, 16); }),
              HasSubstr("on XLA use levin::activation_checkpoint"));
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
