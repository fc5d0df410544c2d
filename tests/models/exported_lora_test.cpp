// LoRA on programs of torch.export; tests/oracle/exported_parts_test.cpp compares its numbers with PEFT's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/interchange/load_exported.h"
#include "levin/models/lora.h"
#include "levin/module/parameters.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::test::exported_lora {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kWidth = 6;

/// up, down and head, one after another. tied: down and head have one matrix.
SmallProgram network(bool is_tied = false) {
  SmallProgram program;
  program.input("x", meta_of({-1, kWidth}));
  std::string x = "x";
  torch::manual_seed(8);
  for (const std::string name : {"up", "down", "head"}) {
    program.classes[name] = "torch.nn.modules.linear.Linear";
    program.module(name);
    program.parameter(name + ".weight", at::randn({kWidth, kWidth}) * 0.3);
    program.parameter(name + ".bias", at::randn({kWidth}));
    program.node("torch.ops.aten.linear.default",
                 {{"input", tensor_named(x)},
                  {"weight", tensor_named("p_" + name + ".weight")},
                  {"bias", tensor_named("p_" + name + ".bias")}},
                 "y_" + name, name);
    x = "y_" + name;
  }
  if (is_tied) {
    program.weights_config["head.weight"]["path_name"] =
        program.weights_config["down.weight"]["path_name"];
  }
  program.output(x);
  return program;
}

std::shared_ptr<ExportedModule> loaded(const SmallProgram& program = network()) {
  const Scratch scratch;
  program.write(scratch / "net.pt2");
  return load_exported(scratch / "net.pt2");
}

std::vector<std::string> trained(const torch::nn::Module& net) {
  std::vector<std::string> names;
  for (const NamedTensor& each : named_parameters(net)) {
    if (each.tensor.requires_grad()) names.push_back(each.name);
  }
  return names;
}

at::Tensor input() { return at::arange(2 * kWidth, at::kFloat).view({2, kWidth}).sin(); }

/// Values that make a difference.
void fill(ExportedModule& net) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& each : named_parameters(net)) {
    if (each.name.find("lora_B") != std::string::npos) at::Tensor(each.tensor).fill_(0.25);
  }
}

TEST(ExportedLora, ChangesNothingAtFirstAndFreezesTheBase) {
  const auto net = loaded();
  const at::Tensor before = net->forward(input()).detach();
  lora::add(*net, {.r = 2, .target_modules = {"up", "down"}});
  EXPECT_TRUE(at::allclose(net->forward(input()).detach(), before));
  EXPECT_THAT(trained(*net), ElementsAre("up.lora_A.weight", "up.lora_B.weight",
                                         "down.lora_A.weight", "down.lora_B.weight"));
  fill(*net);
  EXPECT_FALSE(at::allclose(net->forward(input()).detach(), before));
  net->forward(input()).sum().backward();
  EXPECT_TRUE(net->named_parameters()["up.lora_A.weight"].grad().defined());
  EXPECT_FALSE(net->named_parameters()["up.weight"].grad().defined());
}

TEST(ExportedLora, ModulesToSaveAreTrainedWholeAndSaved) {
  const auto net = loaded();
  lora::add(*net, {.r = 2, .target_modules = {"up"}, .modules_to_save = {"head"}});
  EXPECT_THAT(trained(*net),
              ElementsAre("up.lora_A.weight", "up.lora_B.weight", "head.weight", "head.bias"));
  fill(*net);
  {
    const at::NoGradGuard no_grad;
    net->named_parameters()["head.bias"].fill_(3);
  }
  const Scratch scratch;
  lora::save(*net, scratch / "adapter");
  const auto again = loaded();
  lora::load(*again, scratch / "adapter");
  EXPECT_TRUE(at::equal(again->forward(input()), net->forward(input())));
  EXPECT_EQ(trained(*again), trained(*net));
}

TEST(ExportedLora, MergedIsTheSameWithoutTheAdapterAndComesOutAgain) {
  const auto net = loaded();
  lora::add(*net, {.r = 2, .lora_alpha = 6, .target_modules = {"up", "head"}});
  fill(*net);
  const at::Tensor adapted = net->forward(input()).detach();
  const at::Tensor before = net->named_parameters()["up.weight"].detach().clone();
  lora::merge(*net);
  EXPECT_TRUE(at::allclose(net->forward(input()).detach(), adapted));
  // The merged matrices alone, in a network that was never adapted.
  State merged;
  for (const NamedTensor& each : named_parameters(*net)) {
    if (each.name.find("lora_") == std::string::npos) merged.set(each.name, each.tensor.detach());
  }
  const auto plain = loaded();
  load_module_state(*plain, merged);
  EXPECT_TRUE(at::allclose(plain->forward(input()).detach(), adapted));
  lora::unmerge(*net);
  EXPECT_TRUE(at::equal(net->named_parameters()["up.weight"].detach(), before));
  EXPECT_TRUE(at::equal(net->forward(input()).detach(), adapted));
}

TEST(ExportedLora, DropoutIsThatOfTraining) {
  const auto net = loaded();
  lora::add(*net, {.r = 2, .lora_dropout = 0.5, .target_modules = {"up"}});
  fill(*net);
  net->eval();
  EXPECT_TRUE(at::equal(net->forward(input()), net->forward(input())));
  net->train();
  EXPECT_FALSE(at::equal(net->forward(input()), net->forward(input())));
}

TEST(ExportedLora, NamesWhatItCannotAdapt) {
  const auto told = [](const LoraOptions& options, bool is_tied = false) {
    return error_of([&] { lora::add(*loaded(network(is_tied)), options); });
  };
  EXPECT_THAT(told({.target_modules = {"uup"}}),
              AllOf(StartsWith("models.lora.target: "), HasSubstr("nearest is up")));
  EXPECT_THAT(told({}), StartsWith("models.lora.target: "));
  EXPECT_THAT(told({.target_modules = {"up"}, .modules_to_save = {"hed"}}),
              AllOf(StartsWith("models.lora.target: "), HasSubstr("nearest is head")));
  EXPECT_THAT(told({.use_dora = true}), StartsWith("models.lora.options: "));
  EXPECT_THAT(told({.r = 0, .target_modules = {"up"}}),
              StartsWith("models.lora.options: got r = 0"));
  EXPECT_THAT(told({.target_modules = {"head"}}, /*is_tied=*/true),
              AllOf(StartsWith("models.lora.options: "), HasSubstr("down.weight and head.weight")));
  EXPECT_EQ(told({.target_modules = {"up"}}, /*is_tied=*/true), "no error");
  const auto net = loaded();
  const Scratch scratch;
  EXPECT_THAT(error_of([&] { lora::save(*net, scratch / "none"); }),
              StartsWith("models.lora.none: "));
  lora::add(*net, {.r = 2, .target_modules = {"up"}});
  EXPECT_THAT(error_of([&] { lora::add(*net, {.target_modules = {"up"}}); }),
              StartsWith("models.lora.twice: "));
  lora::save(*net, scratch / "adapter");
  State other = load_weights(scratch / "adapter" / "adapter_model.safetensors");
  other.set("base_model.model.side.lora_A.weight", at::ones({2, 2}));
  save_weights(scratch / "adapter" / "adapter_model.safetensors", other);
  EXPECT_THAT(error_of([&] { lora::load(*loaded(), scratch / "adapter"); }),
              AllOf(StartsWith("models.lora.weights: "), HasSubstr("side.lora_A")));
}

}  // namespace
}  // namespace levin::test::exported_lora
