// validate, test and predict with the weights of a checkpoint.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/log_sink.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT

/// Scores by epoch: 1, 3, 2; its weights are the epoch's number.
struct ThirdOfThree : Net {
  ThirdOfThree() : Net(0.0) {}
  void on_train_epoch_end() override {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(static_cast<double>(current_epoch()));
  }
  void validation_step(const levin::Batch&, int64_t) override {
    log("weight", parameters().front().mean());
    log("score", current_epoch() == 1 ? 3.0 : 1.0);
  }
};

levin::DataLoader some() { return {dataset(16), {.batch_size = 8}}; }

TEST(EvaluateCheckpoint, BestAndLastAreTheFitsOwn) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 3;
  options.callbacks = {levin::model_checkpoint(
      {.monitor = "score", .mode = "max", .save_on_train_epoch_end = true})};
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<ThirdOfThree>(), some(), some());
  const auto weight_of = [&](const std::string& ckpt_path) {
    levin::Trainer other(options);
    return other.validate(std::make_shared<ThirdOfThree>(), some(), {.ckpt_path = ckpt_path})
        .at("weight");
  };
  EXPECT_EQ(weight_of("last"), 2.0);
  EXPECT_EQ(weight_of(root.str() + "/checkpoints/last"), 2.0);
  const double best =
      trainer.validate(std::make_shared<ThirdOfThree>(), some(), {.ckpt_path = "best"})
          .at("weight");
  EXPECT_EQ(best, 1.0);
}

TEST(EvaluateCheckpoint, BestStaysTheFitsThroughSeveralEvaluations) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 2;
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<ThirdOfThree>(), some(), some());
  options.max_epochs = 1;  // a newer run there, of another Trainer
  options.callbacks = {levin::model_checkpoint({.dirpath = root.str() + "/other"})};
  levin::Trainer(options).fit(std::make_shared<ThirdOfThree>(), some(), some());
  for (int i = 0; i < 2; ++i) {
    const auto metrics =
        trainer.validate(std::make_shared<ThirdOfThree>(), some(), {.ckpt_path = "best"});
    EXPECT_EQ(metrics.at("weight"), 1.0) << i;
  }
}

TEST(EvaluateCheckpoint, AFitThatSavedNothingHasNoBestOfAnother) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 1;
  levin::Trainer(options).fit(std::make_shared<ThirdOfThree>(), some(), some());
  options.enable_checkpointing = false;
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<ThirdOfThree>(), some(), some());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(levin::test::error_id([&] {
                trainer.validate(std::make_shared<ThirdOfThree>(), some(), {.ckpt_path = "best"});
              }),
              "trainer.ckpt_path")
        << i;
    trainer.validate(std::make_shared<ThirdOfThree>(), some());
  }
}

TEST(EvaluateCheckpoint, ACheckpointThatIsNotThereIsNamed) {
  const Scratch root;
  levin::Trainer trainer(quiet(root.str()));
  const auto id = [&](const std::string& ckpt_path) {
    return levin::test::error_id(
        [&] { trainer.validate(std::make_shared<Net>(), some(), {.ckpt_path = ckpt_path}); });
  };
  EXPECT_EQ(id("last"), "trainer.ckpt_path");
  EXPECT_EQ(id("best"), "trainer.ckpt_path");
  EXPECT_EQ(id(root.str() + "/none"), "checkpoint.missing");
}

TEST(EvaluateCheckpoint, WeightsOfAnotherDtypeAreSaidInEachWayToLoadThem) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 1;
  levin::Trainer(options).fit(std::make_shared<Net>(), some());
  levin::Checkpoint checkpoint = levin::load_checkpoint(root.str() + "/checkpoints/last");
  const levin::State doubles = levin::cast_floating(checkpoint.weights.at("model"), torch::kDouble);
  checkpoint.weights["model"] = doubles;
  levin::save_checkpoint(root / "doubles", checkpoint);
  levin::save_weights(root / "doubles.pt", doubles);
  levin::save_weights(root / "doubles.safetensors", doubles);
  options.max_epochs = 2;
  const auto heard_in = [&](const auto& body) {
    std::string heard;
    const auto before = levin::log::set_sink([&](levin::log::Level level, std::string_view line) {
      if (level == levin::log::Level::kWarn) heard.append(line);
    });
    body();
    levin::log::set_sink(before);
    return heard;
  };
  const std::string wanted = "weights: 8 tensors are cast from Double to the module's Float (";
  for (const char* name : {"doubles", "doubles.pt", "doubles.safetensors"}) {
    const std::string path = (root / name).string();
    EXPECT_THAT(heard_in([&] {
                  levin::Trainer(options).validate(std::make_shared<Net>(), some(),
                                                   {.ckpt_path = path});
                }),
                ::testing::HasSubstr(wanted))
        << name;
  }
  options.ckpt_path = (root / "doubles").string();
  EXPECT_THAT(heard_in([&] { levin::Trainer(options).fit(std::make_shared<Net>(), some()); }),
              ::testing::HasSubstr(wanted));
}

TEST(EvaluateCheckpoint, TheLogsOfOneTrainerGoToOneFolder) {
  const Scratch root;
  auto options = quiet(root.str());
  options.logger = true;
  options.max_epochs = 1;
  levin::Trainer trainer(options);
  auto net = std::make_shared<Net>();
  trainer.fit(net, some(), some());
  trainer.validate(net, some());
  EXPECT_EQ(levin::test::names_in(root / "levin_logs"), std::vector<std::string>{"version_0"});
}

}  // namespace
