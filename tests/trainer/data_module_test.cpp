// The data module in a run: its hooks, hyper-parameters, from_datasets, several prediction loaders.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/trainer/numbered_run.h"

namespace data_module {

using namespace numbered_run;  // NOLINT
using levin::test::error_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Calls = std::vector<std::string>;

struct Told : Seeing {
  Calls& calls;
  explicit Told(Calls& calls) : calls(calls) {}
  levin::Batch on_before_batch_transfer(levin::Batch batch) override {
    calls.emplace_back("module before");
    return batch;
  }
  levin::Batch on_after_batch_transfer(levin::Batch batch) override {
    calls.emplace_back("module after");
    return batch;
  }
};

/// Adds to the numbers of a batch in each hook: 1000, 200 and 30.
struct Hooked : levin::DataModule {
  Calls& calls;
  bool fails = false;
  explicit Hooked(Calls& calls) : calls(calls) {}

  static levin::Batch plus(levin::Batch batch, int64_t number) {
    batch.set("number", batch["number"] + number);
    return batch;
  }
  std::optional<levin::DataLoader> train_dataloader() override { return numbers(2, 2); }
  std::optional<levin::DataLoader> val_dataloader() override { return numbers(2, 2); }
  levin::Batch on_before_batch_transfer(levin::Batch batch) override {
    calls.emplace_back("before");
    return plus(std::move(batch), 1000);
  }
  std::optional<levin::Batch> transfer_batch_to_device(const levin::Batch& batch,
                                                       at::Device device) override {
    calls.push_back("to " + device.str());
    return plus(batch, 200).to(device);
  }
  levin::Batch on_after_batch_transfer(levin::Batch batch) override {
    calls.emplace_back("after");
    return plus(std::move(batch), 30);
  }
  void on_exception(const std::exception& error) override {
    calls.push_back(std::string("failed: ") + error.what());
    if (fails) throw std::runtime_error("again");
  }
};

TEST(DataModuleHooks, ChangeEachBatchBeforeTheModulesHooks) {
  Calls calls;
  auto options = bare();
  options.max_epochs = 1;
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Told>(calls);
  trainer.fit(module, std::make_shared<Hooked>(calls));
  EXPECT_THAT(module->trained, ElementsAre(1230, 1231));
  EXPECT_THAT(module->validated, ElementsAre(1230, 1231));
  const Calls each = {"before", "module before", "to cpu", "after", "module after"};
  Calls twice = each;
  twice.insert(twice.end(), each.begin(), each.end());
  EXPECT_EQ(calls, twice);
}

struct Failing : Seeing {
  at::Tensor training_step(const levin::Batch&, int64_t) override {
    throw std::runtime_error("no step");
  }
  void test_step(const levin::Batch&, int64_t) override { throw std::runtime_error("no test"); }
};

struct HookedTest : Hooked {
  using Hooked::Hooked;
  std::optional<levin::DataLoader> test_dataloader() override { return numbers(2, 2); }
};

TEST(DataModuleHooks, HearOfAnExceptionOfFitAndOfEvaluation) {
  for (const bool fails : {false, true}) {
    Calls calls;
    levin::Trainer trainer(bare());
    const auto data = std::make_shared<HookedTest>(calls);
    data->fails = fails;
    EXPECT_THROW(trainer.fit(std::make_shared<Failing>(), data), std::runtime_error);
    EXPECT_THAT(calls.back(), HasSubstr("failed: no step"));
    EXPECT_THROW(trainer.test(std::make_shared<Failing>(), data), std::runtime_error);
    EXPECT_THAT(calls.back(), HasSubstr("failed: no test"));
  }
}

struct Sized : levin::DataModule {
  struct Options {
    int64_t size = 4;
    std::string kind = "plain";
    void fields(levin::FieldVisitor& field) {
      field("size", size, "samples");
      field("kind", kind, "plain or noisy");
    }
  };
  Options options;
  int64_t position = 0;

  explicit Sized(Options options) : options(std::move(options)) {}
  std::map<std::string, std::string> hparams() const override {
    return levin::options_as_text(options);
  }
  std::optional<levin::DataLoader> train_dataloader() override { return numbers(options.size, 2); }
  levin::State state_dict() const override { return std::move(levin::State().set("at", position)); }
  void load_state_dict(const levin::State& state) override { position = state.integer("at"); }
};

/// Keeps the hyper-parameters that it is told.
struct HparamsLogger : Recorder {
  std::map<std::string, std::string> hparams;
  void log_hyperparams(const std::map<std::string, std::string>& told) override { hparams = told; }
};

struct WithSize : Seeing {
  std::string size;
  explicit WithSize(std::string size) : size(std::move(size)) {}
  std::map<std::string, std::string> hparams() const override { return {{"size", size}}; }
};

TEST(DataModuleHparams, AreLoggedAndComeBackFromACheckpoint) {
  Scratch scratch;
  auto options = bare();
  options.enable_checkpointing = true;
  options.callbacks = {levin::model_checkpoint({.dirpath = (scratch / "runs").string()})};
  const auto logger = std::make_shared<HparamsLogger>();
  options.logger = logger;
  levin::Trainer trainer(options);
  const auto data = std::make_shared<Sized>(Sized::Options{.size = 6, .kind = "noisy"});
  data->position = 11;
  trainer.fit(std::make_shared<WithSize>("6"), data);
  EXPECT_EQ(logger->hparams.at("size"), "6");
  EXPECT_EQ(logger->hparams.at("kind"), "noisy");
  EXPECT_EQ(logger->hparams.at("max_epochs"), "2");

  const auto last = scratch / "runs" / "last";
  const auto loaded = levin::load_from_checkpoint<Sized>(last);
  EXPECT_EQ(loaded->options.size, 6);
  EXPECT_EQ(loaded->options.kind, "noisy");
  EXPECT_EQ(loaded->position, 11);
  const auto other = levin::load_from_checkpoint<Sized>(last, {.hparams = {{"size", "8"}}});
  EXPECT_EQ(other->options.size, 8);
  EXPECT_EQ(other->options.kind, "noisy");
}

TEST(DataModuleHparams, ThatContradictTheModulesAreAnError) {
  levin::Trainer trainer(bare());
  EXPECT_THAT(error_of([&] {
                trainer.fit(std::make_shared<WithSize>("5"),
                            std::make_shared<Sized>(Sized::Options{.size = 6}));
              }),
              StartsWith("trainer.hparams: the hyper-parameter 'size' is 5 for the module and 6"));
}

TEST(DataModuleHparams, AreMissingFromACheckpointOfALoader) {
  Scratch scratch;
  auto options = bare();
  options.enable_checkpointing = true;
  options.callbacks = {levin::model_checkpoint({.dirpath = (scratch / "runs").string()})};
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<WithSize>("6"), numbers(4, 2));
  EXPECT_THAT(error_of([&] { levin::load_from_checkpoint<Sized>(scratch / "runs" / "last"); }),
              AllOf(StartsWith("trainer.hparams: "),
                    HasSubstr("has no hyper-parameters of a data module")));
}

levin::DatasetPtr set_of(int64_t size, int64_t from) { return numbers(size, 1, from).dataset(); }

TEST(DataModuleFromDatasets, HasALoaderForEach) {
  const auto data = levin::DataModule::from_datasets({.train = set_of(40, 0),
                                                      .val = {set_of(4, 100)},
                                                      .test = {set_of(3, 200), set_of(2, 300)},
                                                      .predict = {set_of(5, 400)},
                                                      .batch_size = 2,
                                                      .num_workers = 1});
  auto options = bare();
  options.max_epochs = 1;
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Seeing>();
  trainer.fit(module, data);
  EXPECT_THAT(module->trained, ::testing::UnorderedElementsAreArray(range(0, 40)));
  EXPECT_NE(module->trained, range(0, 40));
  EXPECT_EQ(module->validated, range(100, 104));
  module->validated.clear();
  trainer.test(module, data);
  EXPECT_THAT(module->validated, ElementsAre(200, 201, 202, 300, 301));
  EXPECT_EQ(trainer.predict(module, data).size(), 3);
  EXPECT_EQ(data->train_dataloader()->options().num_workers, 1);

  const auto empty = levin::DataModule::from_datasets({});
  EXPECT_FALSE(empty->train_dataloader() || empty->val_dataloader() || empty->test_dataloader() ||
               empty->predict_dataloader());
  EXPECT_THAT(error_of([] { levin::DataModule::from_datasets({.val = {nullptr}}); }),
              StartsWith("data.loader.dataset"));
}

/// Returns the samples' numbers and the loader that they come from.
struct Predicting : Seeing {
  std::vector<levin::DataLoader> loaders;
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return batch["number"] + 10000 * dataloader_index();
  }
  std::vector<levin::DataLoader> predict_dataloaders() override { return loaders; }
};

Calls texts_of(const std::vector<at::Tensor>& outputs) {
  Calls texts;
  for (const at::Tensor& output : outputs) {
    std::string text;
    for (int64_t i = 0; i < output.size(0); ++i) {
      text += (i > 0 ? " " : "") + std::to_string(output[i].item<int64_t>());
    }
    texts.push_back(text);
  }
  return texts;
}

TEST(PredictionLoaders, EachHasItsOwnOutputs) {
  levin::Trainer trainer(bare());
  const auto module = std::make_shared<Predicting>();
  const auto outputs =
      trainer.predict(module, std::vector{numbers(3, 2), numbers(0, 1), numbers(2, 1, 100)});
  ASSERT_EQ(outputs.size(), 3);
  EXPECT_THAT(texts_of(outputs[0]), ElementsAre("0 1", "2"));
  EXPECT_THAT(texts_of(outputs[1]), ElementsAre());
  EXPECT_THAT(texts_of(outputs[2]), ElementsAre("20100", "20101"));
  // A second call begins anew.
  EXPECT_EQ(trainer.predict(module, std::vector{numbers(3, 2)}).size(), 1);
}

TEST(PredictionLoaders, OfModuleAndDataModuleFollowEachOther) {
  levin::Trainer trainer(bare());
  const auto module = std::make_shared<Predicting>();
  module->loaders = {numbers(2, 2), numbers(2, 1, 100)};
  EXPECT_THAT(texts_of(trainer.predict(module)), ElementsAre("0 1", "10100", "10101"));
  const auto data = levin::DataModule::from_datasets(
      {.predict = {set_of(2, 5), set_of(1, 300)}, .batch_size = 2});
  EXPECT_THAT(texts_of(trainer.predict(module, data)), ElementsAre("5 6", "10300"));
  EXPECT_THAT(error_of([&] { trainer.predict(module, std::vector<levin::DataLoader>()); }),
              HasSubstr("got no predict_dataloader"));
}

}  // namespace data_module
