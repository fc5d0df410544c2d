// load_from_checkpoint: hyper-parameters and weights of a run come back as a module.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/trainer/small_run.h"

namespace load_from_checkpoint {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using ::testing::HasSubstr;

struct Sized : levin::Module {
  struct Options {
    int64_t width = 4;
    double dropout = 0.0;
    std::string activation = "relu";
    void fields(levin::FieldVisitor& field) {
      field("width", width, "hidden units");
      field("dropout", dropout, "part of the units that is dropped");
      field("activation", activation, "relu or tanh");
    }
  };
  Options options;
  torch::nn::Linear in{nullptr}, out{nullptr};
  int64_t restored = 0;

  explicit Sized(Options options) : options(options) {
    in = register_module("in", torch::nn::Linear(6, options.width));
    out = register_module("out", torch::nn::Linear(options.width, 3));
  }
  std::map<std::string, std::string> hparams() const override {
    return levin::options_as_text(options);
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    const auto hidden = in->forward(batch["x"]).relu();
    return torch::nn::functional::cross_entropy(out->forward(hidden), batch["y"]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
  void on_save_checkpoint(levin::State& state) override { state.set("mine", int64_t{7}); }
  void on_load_checkpoint(const levin::State& state) override { restored = state.integer("mine"); }
};

fs::path trained(const std::shared_ptr<levin::Module>& module, const fs::path& root) {
  auto options = quiet(root.string());
  options.max_epochs = 1;
  options.callbacks = {levin::model_checkpoint({.dirpath = (root / "runs").string()})};
  levin::Trainer trainer(options);
  trainer.fit(module, levin::DataLoader(dataset(16), {.batch_size = 8}));
  return root / "runs" / "last";
}

TEST(LoadFromCheckpoint, GivesBackHyperParametersWeightsAndUserState) {
  Scratch scratch;
  const auto net =
      std::make_shared<Sized>(Sized::Options{.width = 5, .dropout = 0.25, .activation = "tanh"});
  const fs::path last = trained(net, scratch.path());
  const auto loaded = levin::load_from_checkpoint<Sized>(last);
  EXPECT_EQ(loaded->options.width, 5);
  EXPECT_EQ(loaded->options.dropout, 0.25);
  EXPECT_EQ(loaded->options.activation, "tanh");
  EXPECT_EQ(loaded->restored, 7);
  expect_same_weights(*net, *loaded);
}

TEST(LoadFromCheckpoint, AValueOfTheCallerWins) {
  Scratch scratch;
  const fs::path last = trained(std::make_shared<Sized>(Sized::Options{}), scratch.path());
  const auto loaded = levin::load_from_checkpoint<Sized>(last, {.hparams = {{"dropout", "0.5"}}});
  EXPECT_EQ(loaded->options.dropout, 0.5);
  EXPECT_EQ(loaded->options.width, 4);
  EXPECT_THAT(
      error_of([&] { levin::load_from_checkpoint<Sized>(last, {.hparams = {{"widht", "5"}}}); }),
      HasSubstr("base.options.unknown: got a value for 'widht', which is no option; did you "
                "mean 'width'?"));
  EXPECT_THAT(
      error_of([&] { levin::load_from_checkpoint<Sized>(last, {.hparams = {{"width", "wide"}}}); }),
      HasSubstr("base.options.value: width: got 'wide', wanted an integer"));
}

TEST(LoadFromCheckpoint, IsStrictUnlessItIsTold) {
  Scratch scratch;
  const fs::path last = trained(std::make_shared<Sized>(Sized::Options{}), scratch.path());
  struct WithMore : Sized {
    explicit WithMore(Options options) : Sized(options) {
      register_parameter("more", torch::full({2}, 3.0));
    }
  };
  EXPECT_THAT(error_of([&] { levin::load_from_checkpoint<WithMore>(last); }),
              HasSubstr("module.state.missing"));
  const auto loaded =
      levin::load_from_checkpoint<WithMore>(last, {.weights = {.allow_missing = {"more"}}});
  EXPECT_TRUE(loaded->named_parameters()["more"].equal(torch::full({2}, 3.0)));
}

TEST(LoadFromCheckpoint, AModuleWithoutOptionsNeedsNone) {
  Scratch scratch;
  const auto net = std::make_shared<Net>();
  const fs::path last = trained(net, scratch.path());
  expect_same_weights(*net, *levin::load_from_checkpoint<Net>(last));
  EXPECT_THAT(error_of([&] { levin::load_from_checkpoint<Sized>(last); }),
              HasSubstr("trainer.hparams"));
}

}  // namespace load_from_checkpoint
