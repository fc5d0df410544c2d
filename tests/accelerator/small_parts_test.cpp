// Small parts of Accelerate: its logger for several processes, options of trackers, numbers of
// checkpoints, and models that are only evaluated.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <mutex>
#include <sstream>

#include "levin/base/log_sink.h"
#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/variable.h"
#include "tests/support/world.h"

namespace small_parts {
namespace {

using levin::Accelerator;
using levin::test::error_of;
using levin::test::run_world;
using levin::test::Scratch;
using small_nets::dataset;
using small_nets::sequential;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Keeps what is logged as long as it lives.
class Kept {
 public:
  Kept() {
    before_ = levin::log::set_sink([this](levin::log::Level level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      lines.push_back(std::to_string(static_cast<int>(level)) + " " + std::string(text));
    });
  }
  ~Kept() { levin::log::set_sink(before_); }
  std::vector<std::string> lines;

 private:
  std::mutex mutex_;
  levin::log::Sink before_;
};

TEST(GetLogger, WritesOnTheMainProcessOrOnAll) {
  const auto words = run_world(2, [](int64_t rank, const auto& folder) {
    Accelerator accelerator({.cpu = true});
    auto logger = levin::get_logger(accelerator, "train");
    const Kept kept;
    const auto file = folder / "turns";
    logger.info("main");
    logger.info("all", {.main_process_only = false});
    logger.debug("not at this level", {.main_process_only = false});
    logger.warning_once("once");
    logger.warning_once("once");
    logger.error("in order", {.in_order = true});
    std::string all;
    for (const std::string& line : kept.lines) all += line + "; ";
    return all + std::to_string(rank);
  });
  EXPECT_THAT(words, ElementsAre("1 train: main; 1 train: all; 2 train: once; 3 train: in order; 0",
                                 "1 train: all; 3 train: in order; 1"));
}

TEST(GetLogger, InOrderWritesByRank) {
  const auto words = run_world(3, [](int64_t rank, const std::filesystem::path& folder) {
    Accelerator accelerator({.cpu = true});
    auto logger = levin::get_logger(accelerator, "train");
    const auto file = folder / "turns";
    const auto before = levin::log::set_sink([&](levin::log::Level, std::string_view) {
      std::ofstream(file, std::ios::app) << rank;  // opened anew by each rank
    });
    for (int i = 0; i < 20; ++i) logger.info("turn", {.in_order = true});
    levin::log::set_sink(before);
    accelerator.wait_for_everyone();
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  });
  std::string wanted;
  for (int i = 0; i < 20; ++i) wanted += "012";
  EXPECT_THAT(words, ::testing::Each(wanted));
}

TEST(GetLogger, HasALevelOfItsOwn) {
  Accelerator accelerator({.cpu = true});
  auto quiet = levin::get_logger(accelerator, "quiet", levin::log::Level::kError);
  auto talks = levin::get_logger(accelerator, "talks", levin::log::Level::kDebug);
  const Kept kept;
  quiet.warning("left out");
  quiet.error("written");
  talks.debug("details");
  EXPECT_THAT(kept.lines, ElementsAre("3 quiet: written", "0 talks: details"));
}

TEST(InitTrackers, GivesLoggersTheirOptions) {
  const Scratch scratch;
  Accelerator accelerator(
      {.cpu = true, .log_with = {"csv", "tensorboard"}, .project_dir = scratch.str()});
  accelerator.init_trackers("p", {},
                            {{"csv", {{"prefix", "a"}}}, {"tensorboard", {{"sub_dir", "events"}}}});
  accelerator.log({{"loss", 0.5}}, 1);
  const std::filesystem::path dir = accelerator.get_tracker("csv")->log_dir();
  accelerator.end_training();
  std::ostringstream text;
  text << std::ifstream(dir / "metrics.csv").rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("a-loss"));
  EXPECT_TRUE(std::filesystem::is_directory(dir / "events"));
}

TEST(InitTrackers, RefusesOptionsThatNobodyTakes) {
  const Scratch scratch;
  Accelerator accelerator(
      {.cpu = true, .log_with = {"csv", "mlflow"}, .project_dir = scratch.str()});
  const auto refused = [&](const std::string& tracker, const std::string& option) {
    return error_of([&] { accelerator.init_trackers("p", {}, {{tracker, {{option, "x"}}}}); });
  };
  EXPECT_THAT(
      refused("tensorboard", "prefix"),
      StartsWith("accelerator.log_with: got init_kwargs of 'tensorboard', wanted those of a "
                 "tracker in log_with"));
  EXPECT_THAT(refused("mlflow", "run_name"),
              StartsWith("accelerator.log_with: got init_kwargs of mlflow, which takes none"));
  EXPECT_THAT(refused("csv", "prefixx"), StartsWith("base.options.unknown"));
}

TEST(SaveIteration, IsTheNumberOfTheNextCheckpoint) {
  const Scratch scratch;
  Accelerator accelerator(
      {.cpu = true,
       .project_dir = scratch.str(),
       .project_config = {.automatic_checkpoint_naming = true, .iteration = 3}});
  auto [model] = accelerator.prepare(sequential());
  EXPECT_EQ(accelerator.save_iteration(), 3);
  EXPECT_EQ(accelerator.save_state().filename(), "checkpoint_3");
  EXPECT_EQ(accelerator.save_iteration(), 4);
  EXPECT_THAT(error_of([] { Accelerator({.cpu = true}).save_iteration(); }),
              StartsWith("accelerator.project"));
}

TEST(TotalBatchSize, IsTheLoadersWithSplitBatches) {
  const auto words = run_world(2, [](int64_t, const auto&) {
    const auto total = [](bool splits) {
      Accelerator accelerator({.cpu = true, .dataloader_config = {.split_batches = splits}});
      auto [loader] = accelerator.prepare(levin::DataLoader(dataset(16), {.batch_size = 4}));
      return loader.total_batch_size();
    };
    return std::to_string(total(false)) + " " + std::to_string(total(true));
  });
  EXPECT_THAT(words, ::testing::Each("8 4"));
}

TEST(PrepareModel, InEvaluationModeIsOnlyPlaced) {
  Accelerator accelerator({.mixed_precision = "bf16", .cpu = true});
  auto net = sequential(), teacher = sequential();
  const at::Tensor x = torch::randn({4, 6});
  auto trained = accelerator.prepare_model(net);
  auto evaluated = accelerator.prepare_model(teacher, {.evaluation_mode = true});
  const at::Tensor output = evaluated->forward(x);
  EXPECT_EQ(output.scalar_type(), at::kFloat);
  EXPECT_TRUE(torch::equal(output, trained->forward(x)));
  EXPECT_FALSE(torch::equal(output, teacher->forward(x)));  // without autocast
  EXPECT_EQ(accelerator.state_dict().weights.size(), 1U);   // the teacher's are left out
}

TEST(PrepareModel, InEvaluationModeIsNotSharded) {
  const auto words = run_world(2, [](int64_t, const auto&) {
    Accelerator accelerator({.cpu = true, .strategy = "fsdp"});
    const auto net = sequential(), teacher = sequential();
    auto trained = accelerator.prepare_model(net);
    auto evaluated = accelerator.prepare_model(teacher, {.evaluation_mode = true});
    const at::Tensor x = torch::ones({2, 6});
    if (!torch::allclose(trained->forward(x), evaluated->forward(x))) return std::string("differ");
    const int64_t here = net->parameters()[0].numel();
    return (here < 96 ? "sharded " : "whole ") + std::to_string(teacher->parameters()[0].numel());
  });
  EXPECT_THAT(words, ::testing::Each("sharded 96"));
}

}  // namespace
}  // namespace small_parts
