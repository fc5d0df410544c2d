// Faults that other loaders of PyTorch's programs have had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/interchange/load_exported.h"
#include "levin/module/parameters.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::test::exported_faults {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::shared_ptr<ExportedModule> loaded(const SmallProgram& program) {
  const Scratch scratch;
  program.write(scratch / "net.pt2");
  return load_exported(scratch / "net.pt2");
}

at::Tensor table() { return at::arange(9, at::kFloat).view({3, 3}) * 0.1; }

/// y = head(emb(ids)) of one matrix. other: of the head, where it has one of its own.
SmallProgram language_model(bool is_tied) {
  SmallProgram program;
  program.parameter("emb.weight", table());
  program.parameter("head.weight", is_tied ? table() : table() + 1);
  if (is_tied) program.weights_config["head.weight"]["path_name"] = "weight_0";
  program.input("ids", meta_of({-1}, false, /*dtype=*/5));
  program.node("torch.ops.aten.embedding.default",
               {{"weight", tensor_named("p_emb.weight")}, {"indices", tensor_named("ids")}}, "x",
               "emb");
  program.node("torch.ops.aten.linear.default",
               {{"input", tensor_named("x")}, {"weight", tensor_named("p_head.weight")}}, "y",
               "head");
  program.output("y");
  return program;
}

// transformers #45127: a tied head came back as values of its own.
TEST(ExportedFaults, ATiedHeadStaysTiedInTrainingAndThroughACheckpoint) {
  const auto net = loaded(language_model(/*is_tied=*/true));
  const auto parameters = net->named_parameters();
  ASSERT_TRUE(parameters["emb.weight"].is_same(parameters["head.weight"]));
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_EQ(named_parameters(*net).size(), 1U);
  const at::Tensor ids = at::tensor({0, 2}, at::kLong);
  net->forward(ids).square().sum().backward();
  // Both uses are in the one gradient.
  const at::Tensor own = table().requires_grad_();
  at::linear(at::embedding(own, ids), own).square().sum().backward();
  EXPECT_TRUE(at::equal(parameters["head.weight"].grad(), own.grad()));
  sgd.step();
  const Scratch scratch;
  save_weights(scratch / "net.safetensors", module_state(*net));
  const auto again = loaded(language_model(/*is_tied=*/true));
  load_module_state(*again, load_weights(scratch / "net.safetensors"));
  EXPECT_TRUE(
      again->named_parameters()["head.weight"].is_same(again->named_parameters()["emb.weight"]));
  EXPECT_TRUE(at::equal(again->forward(ids), net->forward(ids)));
}

TEST(ExportedFaults, TwoMatricesOfOneValueAreNotTied) {
  const auto net = loaded(language_model(/*is_tied=*/false));
  const auto parameters = net->named_parameters();
  EXPECT_FALSE(parameters["emb.weight"].is_same(parameters["head.weight"]));
  EXPECT_EQ(named_parameters(*net).size(), 2U);
}

/// y = (x + position) * scale, of which neither is in the state dict.
SmallProgram with_constants() {
  SmallProgram program;
  program.passing_buffer("position", at::full({3}, 0.5));
  program.constant("scale", at::full({3}, 2.0));
  program.input("x", meta_of({-1, 3}));
  program.node("torch.ops.aten.add.Tensor",
               {{"self", tensor_named("x")}, {"other", tensor_named("b_position")}}, "moved");
  program.node("torch.ops.aten.mul.Tensor",
               {{"self", tensor_named("moved")}, {"other", tensor_named("t_scale")}}, "y");
  program.output("y");
  return program;
}

// transformers #48892: what was in the memory before.
TEST(ExportedFaults, BuffersOutsideTheStateDictHaveTheirValues) {
  const auto net = loaded(with_constants());
  EXPECT_TRUE(at::equal(net->forward(at::ones({2, 3})), at::full({2, 3}, 3.0)));
  EXPECT_FALSE(module_state(*net).contains("position"));
  SmallProgram without = with_constants();
  without.constants_config.erase("position");
  EXPECT_THAT(error_of([&] { loaded(without); }),
              AllOf(HasSubstr("interchange.archive: "), HasSubstr("no values for 'position'")));
}

// pytorch-cpp #127: constants stayed where the program was exported. Without parameters, which LibTorch cannot put
// on meta.
TEST(ExportedFaults, ConstantsFollowTheModulesDevice) {
  const auto net = loaded(with_constants());
  net->forward(at::ones({2, 3}));
  net->to(at::Device(at::kMeta));
  const at::Tensor out = net->forward(at::ones({2, 3}, at::kMeta));
  EXPECT_EQ(out.device(), at::Device(at::kMeta));
  EXPECT_EQ(out.sizes(), (at::IntArrayRef{2, 3}));
}

// A buffer is converted with its module. A tensor constant is not a part of it, in Python neither.
TEST(ExportedFaults, BuffersOutsideTheStateDictFollowTheModulesDtype) {
  const auto net = loaded(with_constants());
  net->to(at::kDouble);
  const at::Tensor out = net->forward(at::ones({2, 3}, at::kDouble));
  EXPECT_EQ(out.scalar_type(), at::kDouble);
  net->to(at::kBFloat16);
  const at::Tensor low = net->forward(at::ones({2, 3}, at::kBFloat16));
  EXPECT_EQ(low.scalar_type(), at::kFloat);  // bf16 times the constant's fp32
}

// PyTorch #187138: values of another dtype than the program says were cast in silence.
TEST(ExportedFaults, ValuesOfAnotherTypeThanTheProgramsAreAnError) {
  SmallProgram program = small_linear(at::ones({2, 3}), at::ones({2}));
  program.graph["tensor_values"]["p_lin.weight"]["dtype"] = 13;
  EXPECT_THAT(error_of([&] { loaded(program); }),
              AllOf(HasSubstr("interchange.archive: "),
                    HasSubstr("lin.weight is Float of [2, 3], wanted BFloat16 of [2, 3]")));
  program = small_linear(at::ones({2, 3}), at::ones({2}));
  program.graph["tensor_values"]["p_lin.bias"]["sizes"][0]["as_int"] = 3;
  EXPECT_THAT(error_of([&] { loaded(program); }),
              HasSubstr("lin.bias is Float of [2], wanted Float of [3]"));
}

// PyTorch #167872, #172004: a minor version is one that readers of the major one can read.
TEST(ExportedFaults, AnotherMinorVersionIsReadAndAnotherMajorOneIsNot) {
  SmallProgram program = small_linear(at::ones({2, 3}), at::ones({2}));
  for (const int minor : {1, 99}) {
    program.version = {{"major", 8}, {"minor", minor}};
    EXPECT_EQ(error_of([&] { loaded(program); }), "no error") << minor;
  }
  for (const int major : {7, 9}) {
    program.version = {{"major", major}, {"minor", 1}};
    EXPECT_THAT(error_of([&] { loaded(program); }),
                AllOf(HasSubstr("interchange.archive: "), HasSubstr("wanted 8")))
        << major;
  }
}

/// What a program of one mode computes in the other one: dropout and batch norm as LibTorch's.
TEST(ExportedFaults, AProgramOfEvaluationTrainsWithDropout) {
  SmallProgram program = small_linear(at::ones({3, 3}), at::ones({3}));
  program.module("drop");
  program.node(
      "torch.ops.aten.dropout.default",
      {{"input", tensor_named("y")}, {"p", {{"as_float", 0.5}}}, {"train", {{"as_bool", false}}}},
      "z", "drop");
  program.graph["outputs"] = json::array({tensor_named("z")});
  program.output_specs[0]["user_output"]["arg"] = tensor_named("z");
  const auto net = loaded(program);
  const at::Tensor x = at::ones({8, 3});
  EXPECT_FALSE(net->is_training());
  EXPECT_TRUE(at::equal(net->forward(x).detach(), at::full({8, 3}, 4.0)));
  net->train();
  torch::manual_seed(3);
  const at::Tensor got = net->forward(x).detach();
  torch::manual_seed(3);
  EXPECT_TRUE(at::equal(got, at::dropout(at::full({8, 3}, 4.0), 0.5, true)));
}

}  // namespace
}  // namespace levin::test::exported_faults
