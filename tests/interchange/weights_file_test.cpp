// Weights beside the archive: ExportedOptions::weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "levin/checkpoint/checkpoint.h"
#include "levin/files/memory_map.h"
#include "levin/interchange/load_exported.h"
#include "levin/module/parameters.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::test::weights_file {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

at::Tensor other_weight() { return at::arange(6, at::kFloat).view({2, 3}) * -0.3; }
at::Tensor other_bias() { return at::full({2}, 0.25); }
State other_values() {
  return State().set("lin.weight", other_weight()).set("lin.bias", other_bias());
}
SmallProgram linear() { return small_linear(at::ones({2, 3}), at::ones({2})); }

class WeightsFile : public ::testing::Test {
 protected:
  void SetUp() override { linear().write(scratch_ / "net.pt2"); }
  std::shared_ptr<ExportedModule> loaded(const std::string& weights) {
    return load_exported(scratch_ / "net.pt2", {.weights = scratch_ / weights});
  }
  /// What loading says with these values in a file.
  std::string told(const State& values) {
    save_weights(scratch_ / "told.safetensors", values);
    return error_of([&] { loaded("told.safetensors"); });
  }
  const Scratch scratch_;
};

TEST_F(WeightsFile, IsTrainedFromInItsMapAndStaysAsItIs) {
  save_weights(scratch_ / "net.safetensors", other_values());
  {
    const auto net = loaded("net.safetensors");
    for (const NamedTensor& each : named_parameters(*net)) {
      EXPECT_TRUE(files::is_mapped(each.tensor.const_data_ptr())) << each.name;
    }
    const at::Tensor x = at::ones({4, 3});
    EXPECT_TRUE(at::equal(net->forward(x), at::linear(x, other_weight(), other_bias())));
    torch::optim::SGD sgd(net->parameters(), 0.1);
    net->forward(x).sum().backward();
    sgd.step();
    EXPECT_TRUE(at::allclose(net->parameters()[1].detach(), other_bias() - 0.4));
  }
  const State after = load_weights(scratch_ / "net.safetensors");
  EXPECT_TRUE(at::equal(after.tensor("lin.bias"), other_bias()));
  EXPECT_TRUE(at::equal(after.tensor("lin.weight"), other_weight()));
}

TEST_F(WeightsFile, MayBeWhateverLoadWeightsReads) {
  std::filesystem::create_directory(scratch_ / "folder");
  save_weights(scratch_ / "folder" / "model.safetensors", other_values());
  save_checkpoint(scratch_ / "checkpoint", {.weights = {{"model", other_values()}}});
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("lin.weight", other_weight());
  dict.insert("lin.bias", other_bias());
  const std::vector<char> bytes = torch::pickle_save(dict);
  std::ofstream(scratch_ / "net.pt", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  for (const char* name : {"folder", "checkpoint", "net.pt"}) {
    EXPECT_TRUE(at::equal(loaded(name)->parameters()[0].detach(), other_weight())) << name;
  }
}

TEST_F(WeightsFile, OfOtherNamesShapesOrDtypesIsAnErrorThatNamesThem) {
  EXPECT_EQ(told(other_values()), "no error");
  EXPECT_THAT(told(State().set("lin.weight", other_weight())),
              AllOf(StartsWith("interchange.weights: "), HasSubstr("told.safetensors"),
                    HasSubstr("it lacks lin.bias")));
  EXPECT_THAT(told(other_values().set("head", at::ones({1}))),
              HasSubstr("the program does not have head"));
  EXPECT_THAT(told(other_values().set("lin.bias", at::ones({3}))),
              HasSubstr("lin.bias is Float of [3], wanted Float of [2]"));
  // Not cast in silence.
  EXPECT_THAT(told(other_values().set("lin.weight", other_weight().to(at::kBFloat16))),
              HasSubstr("lin.weight is BFloat16 of [2, 3], wanted Float of [2, 3]"));
  EXPECT_THAT(
      told(State().set("net.lin.weight", other_weight()).set("net.lin.bias", other_bias())),
      AllOf(HasSubstr("it lacks lin.bias, lin.weight"), HasSubstr("have the prefix 'net.'")));
  EXPECT_THAT(error_of([&] { loaded("none.safetensors"); }), StartsWith("checkpoint.missing: "));
}

TEST_F(WeightsFile, MakesTheArchivesValuesNeedless) {
  SmallProgram program = linear();
  program.weights.clear();
  program.write(scratch_ / "net.pt2");
  EXPECT_THAT(error_of([&] { load_exported(scratch_ / "net.pt2"); }),
              HasSubstr("missing or damaged"));
  program.weights_config = json::object();
  program.write(scratch_ / "bare.pt2");
  EXPECT_THAT(
      error_of([&] { load_exported(scratch_ / "bare.pt2"); }),
      AllOf(HasSubstr("no values for 'lin.weight'"), HasSubstr("ExportedOptions::weights")));
  save_weights(scratch_ / "net.safetensors", other_values());
  for (const char* name : {"net.pt2", "bare.pt2"}) {
    const auto net = load_exported(scratch_ / name, {.weights = scratch_ / "net.safetensors"});
    EXPECT_TRUE(at::equal(net->parameters()[0].detach(), other_weight())) << name;
  }
}

/// Two layers of one weight: y = x W^T W^T.
SmallProgram tied() {
  SmallProgram program;
  program.parameter("emb.weight", at::ones({3, 3}));
  program.parameter("head.weight", at::ones({3, 3}));
  program.weights_config["head.weight"]["path_name"] = "weight_0";
  program.input("x", meta_of({-1, 3}));
  std::string x = "x";
  for (const std::string name : {"emb", "head"}) {
    program.node("torch.ops.aten.linear.default",
                 {{"input", tensor_named(x)}, {"weight", tensor_named("p_" + name + ".weight")}},
                 "y_" + name, name);
    x = "y_" + name;
  }
  program.output("y_head");
  return program;
}

TEST_F(WeightsFile, WithOneOfTwoTiedNamesGivesBoth) {
  tied().write(scratch_ / "net.pt2");
  const at::Tensor value = at::arange(9, at::kFloat).view({3, 3});
  for (const char* name : {"emb.weight", "head.weight"}) {
    save_weights(scratch_ / "one.safetensors", State().set(name, value));
    const auto net = loaded("one.safetensors");
    const auto parameters = net->named_parameters();
    EXPECT_TRUE(parameters["emb.weight"].is_same(parameters["head.weight"])) << name;
    EXPECT_TRUE(at::equal(parameters["emb.weight"].detach(), value)) << name;
    net->forward(at::ones({2, 3})).sum().backward();
    EXPECT_TRUE(parameters["emb.weight"].grad().defined());
  }
  EXPECT_EQ(told(State().set("emb.weight", value).set("head.weight", value.clone())), "no error");
  EXPECT_THAT(
      told(State().set("emb.weight", value).set("head.weight", value + 1)),
      HasSubstr(
          "emb.weight and head.weight are one tensor in the program, but have different values"));
  EXPECT_THAT(told(State()), HasSubstr("it lacks emb.weight"));
}

// torch.save keeps that two tensors share memory. The program says that its two are two.
TEST_F(WeightsFile, TiesNothingThatTheProgramDoesNotTie) {
  SmallProgram program = tied();
  program.weights_config["head.weight"]["path_name"] = "weight_1";
  program.write(scratch_ / "net.pt2");
  const at::Tensor value = at::arange(9, at::kFloat).view({3, 3});
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("emb.weight", value);
  dict.insert("head.weight", value);
  const std::vector<char> bytes = torch::pickle_save(dict);
  std::ofstream(scratch_ / "net.pt", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const auto net = loaded("net.pt");
  const at::NoGradGuard no_grad;
  net->named_parameters()["emb.weight"].zero_();
  EXPECT_TRUE(at::equal(net->named_parameters()["head.weight"], value));
}

// As convolutions in channels-last: the program's views are those of its strides.
TEST_F(WeightsFile, IsCopiedIntoTheProgramsStrides) {
  SmallProgram program = linear();
  const json strides = json::array({{{"as_int", 1}}, {{"as_int", 2}}});
  program.graph["tensor_values"]["p_lin.weight"]["strides"] = strides;
  program.write(scratch_ / "net.pt2");
  save_weights(scratch_ / "net.safetensors", other_values());
  const at::Tensor weight = loaded("net.safetensors")->parameters()[0];
  EXPECT_EQ(weight.strides(), (at::IntArrayRef{1, 2}));
  EXPECT_TRUE(at::equal(weight.detach(), other_weight()));
  // A forged program gets no memory for it.
  program.graph["tensor_values"]["p_lin.weight"]["strides"][1]["as_int"] = int64_t{1} << 50;
  program.write(scratch_ / "net.pt2");
  EXPECT_EQ(loaded("net.safetensors")->parameters()[0].strides(), (at::IntArrayRef{3, 1}));
}

}  // namespace
}  // namespace levin::test::weights_file
