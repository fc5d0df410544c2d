#include "levin/trainer/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>

#include "levin/checkpoint/checkpoint.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

struct ToolModule : Net {
  struct Options {
    double bias = 0.0;
    void fields(levin::FieldVisitor& field) { field("bias", bias, "added to what is predicted"); }
  };
  Options chosen;
  explicit ToolModule(Options options) : chosen(options) {}
  void test_step(const levin::Batch& batch, int64_t index) override {
    validation_step(batch, index);
  }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return batch["x"] + chosen.bias;
  }
};

struct ToolData : levin::DataModule {
  std::optional<levin::DataLoader> loader() {
    return levin::DataLoader(dataset(20), {.batch_size = 8});
  }
  std::optional<levin::DataLoader> train_dataloader() override { return loader(); }
  std::optional<levin::DataLoader> val_dataloader() override { return loader(); }
  std::optional<levin::DataLoader> test_dataloader() override { return loader(); }
  std::optional<levin::DataLoader> predict_dataloader() override { return loader(); }
};

struct Said {
  int code;
  std::string out, err;
};

Said tool(const std::string& root, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tool");
  auto defaults = quiet(root);
  defaults.max_epochs = 1;
  defaults.logger = true;
  CaptureStdout();
  CaptureStderr();
  Said said;
  said.code = levin::cli<ToolModule, ToolData>(static_cast<int>(arguments.size()), arguments.data(),
                                               defaults);
  said.out = GetCapturedStdout();
  said.err = GetCapturedStderr();
  return said;
}

TEST(Cli, FitTestAndPredictPassTheWeightsOn) {
  const Scratch root;
  ASSERT_EQ(tool(root.str(), {"fit"}).code, 0);
  const Said tested = tool(root.str(), {"test"});
  EXPECT_EQ(tested.code, 0) << tested.err;
  EXPECT_THAT(tested.out, HasSubstr("val_acc="));
  EXPECT_THAT(tested.err, HasSubstr("checkpoints/epoch=0-step=3"));
  const std::string output = (root / "out.safetensors").string();
  const Said predicted = tool(root.str(), {"predict", "--bias", "2", "--output", output.c_str()});
  EXPECT_EQ(predicted.code, 0) << predicted.err;
  std::vector<int64_t> all(20);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_TRUE(torch::equal(levin::load_weights(output).tensor("predictions"),
                           dataset(20)->get(all)["x"] + 2.0));
}

TEST(Cli, HelpListsTheOptionsOfAllThree) {
  const Scratch root;
  const Said all = tool(root.str(), {"--help"});
  EXPECT_EQ(all.code, 0);
  for (const char* word : {"fit", "validate", "test", "predict"}) {
    EXPECT_THAT(all.out, HasSubstr(word));
  }
  const Said fit = tool(root.str(), {"fit", "--help"});
  EXPECT_EQ(fit.code, 0);
  EXPECT_THAT(fit.out, HasSubstr("--bias"));
  EXPECT_THAT(fit.out, HasSubstr("--max-epochs"));
  EXPECT_THAT(tool(root.str(), {"predict", "--help"}).out, HasSubstr("--output"));
}

TEST(Cli, MistakesHaveTheirOwnExitCodes) {
  const Scratch root;
  const Said unknown = tool(root.str(), {"fti"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("trainer.cli: got 'fti'"));
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'fit'?"));
  EXPECT_EQ(tool(root.str(), {"fit", "--biass", "1"}).code, 2);
  EXPECT_EQ(tool(root.str(), {}).code, 2);
  const Said untrained = tool(root.str(), {"test"});
  EXPECT_EQ(untrained.code, 1);
  EXPECT_THAT(untrained.err, HasSubstr("trainer.ckpt_path"));
}

}  // namespace
