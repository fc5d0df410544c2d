// Programs of torch.export as modules: names, inputs, modes, what is refused, and files that are damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <fstream>

#include "levin/interchange/load_exported.h"
#include "levin/module/parameters.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::test::exported_module {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

at::Tensor weight() { return at::arange(6, at::kFloat).view({2, 3}) * 0.1; }
at::Tensor bias() { return at::full({2}, 0.5); }

std::shared_ptr<ExportedModule> loaded(const SmallProgram& program,
                                       const ExportedOptions& options = {}) {
  const Scratch scratch;
  program.write(scratch / "net.pt2");
  return load_exported(scratch / "net.pt2", options);
}
std::string refusal(const SmallProgram& program, const ExportedOptions& options = {}) {
  return error_of([&] { loaded(program, options); });
}

TEST(ExportedModule, HasPythonsNamesAndTrainsItsParameters) {
  const auto net = loaded(small_linear(weight(), bias()));
  std::vector<std::string> names;
  for (const NamedTensor& each : named_parameters(*net)) names.push_back(each.name);
  EXPECT_THAT(names, ElementsAre("lin.weight", "lin.bias"));
  EXPECT_EQ(net->named_children()["lin"]->name(), "Part");
  const at::Tensor x = at::ones({4, 3});
  const at::Tensor y = net->forward(x);
  EXPECT_TRUE(at::equal(y.detach(), at::linear(x, weight(), bias())));
  y.sum().backward();
  EXPECT_TRUE(at::equal(net->parameters()[1].grad(), at::full({2}, 4.0)));
}

// An optimizer writes to pages of the map that are this process' own.
TEST(ExportedModule, LeavesItsFileAsItIs) {
  const Scratch scratch;
  small_linear(weight(), bias()).write(scratch / "net.pt2");
  {
    const auto net = load_exported(scratch / "net.pt2");
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : net->parameters()) parameter.fill_(7);
  }
  const auto again = load_exported(scratch / "net.pt2");
  EXPECT_TRUE(at::equal(again->parameters()[0].detach(), weight()));
}

TEST(ExportedModule, TakesInputsByPlaceByNameAndFromABatch) {
  const auto net = loaded(small_linear(weight(), bias()));
  const at::Tensor x = at::rand({2, 3});
  const at::Tensor wanted = net->forward(x);
  EXPECT_THAT(net->argument_names(), ElementsAre("x"));
  EXPECT_TRUE(at::equal(net->run({}, {{"x", x}}).tensor(), wanted));
  EXPECT_TRUE(at::equal(net->run({{"x", x}, {"label", x}}).tensor(), wanted));
}

TEST(ExportedModule, NamesTheInputThatDoesNotFit) {
  const auto net = loaded(small_linear(weight(), bias()));
  const auto told = [&](const std::vector<c10::IValue>& arguments,
                        const ExportedInputs& named = {}) {
    return error_of([&] { net->run(arguments, named); });
  };
  EXPECT_THAT(told({}), StartsWith("interchange.input: forward did not get 'x'"));
  EXPECT_THAT(told({at::ones({2, 3}), 1}),
              HasSubstr("forward got 2 arguments, but the program takes 1: x"));
  EXPECT_THAT(told({}, {{"y", at::ones({2, 3})}}),
              HasSubstr("forward got 'y', but the program takes x"));
  EXPECT_THAT(told({at::ones({2, 3})}, {{"x", at::ones({2, 3})}}), HasSubstr("'x' twice"));
  EXPECT_THAT(told({1}), HasSubstr("x is Int, wanted a tensor"));
  EXPECT_THAT(told({at::ones({2, 3, 1})}), HasSubstr("x has 3 dims, but the program takes 2"));
  EXPECT_THAT(told({at::ones({2, 3}, at::kLong)}),
              HasSubstr("x has dtype Long, but the program takes Float"));
  EXPECT_THAT(told({at::ones({2, 4})}),
              AllOf(HasSubstr("x.size(1) is 4"), HasSubstr("exported for 3 only"),
                    HasSubstr("dynamic_shapes")));
  EXPECT_THAT(told({at::ones({9, 3})}), HasSubstr("x.size(0) is 9, but the program takes 2 to 8"));
  EXPECT_THAT(told({at::ones({1, 3})}), HasSubstr("x.size(0) is 1, but the program takes 2 to 8"));
  EXPECT_EQ(told({at::ones({8, 3})}), "no error");
}

SmallProgram two_inputs() {
  SmallProgram program;
  program.input("x", meta_of({-1, 3}));
  program.input("y", meta_of({-1, 3}));
  program.node("torch.ops.aten.add.Tensor",
               {{"self", tensor_named("x")}, {"other", tensor_named("y")}}, "z");
  program.output("z");
  return program;
}

TEST(ExportedModule, HoldsSizesOfOneSymbolToEachOther) {
  const auto net = loaded(two_inputs());
  EXPECT_EQ(error_of([&] { net->forward(at::ones({5, 3}), at::ones({5, 3})); }), "no error");
  EXPECT_THAT(error_of([&] { net->forward(at::ones({5, 3}), at::ones({4, 3})); }),
              HasSubstr("y.size(0) is 4, wanted 5, because x.size(0) is 5"));
}

TEST(ExportedModule, TakesNoOtherValueForAConstantInput) {
  SmallProgram program = small_linear(weight(), bias());
  program.constant_input("scale", {{"as_int", 2}});
  program.constant_input("mask", {{"as_none", true}});
  const auto net = loaded(program);
  const at::Tensor x = at::ones({2, 3});
  const auto told = [&](const ExportedInputs& named) {
    return error_of([&] { net->run({x}, named); });
  };
  EXPECT_EQ(told({}), "no error");
  EXPECT_EQ(told({{"scale", 2}, {"mask", c10::IValue()}}), "no error");
  EXPECT_THAT(told({{"scale", 3}}),
              HasSubstr("scale is 3, but the program was exported with 2 only"));
  EXPECT_THAT(told({{"mask", x}}),
              HasSubstr("mask is a tensor, but the program was exported with None only"));
}

TEST(ExportedModule, GivesOutputsByTheNamesOfPythonsDict) {
  SmallProgram program = small_linear(weight(), bias());
  program.node("torch.ops.aten.relu.default", {{"self", tensor_named("y")}}, "h");
  program.output("h");
  program.output_tree = {{"type", "builtins.dict"},
                         {"context", R"(["logits", "hidden"])"},
                         {"children_spec", json(2, leaf_tree())}};
  const auto net = loaded(program);
  const auto out = net->run({at::ones({2, 3})});
  EXPECT_TRUE(at::equal(out["hidden"], out["logits"].relu()));
  EXPECT_THAT(
      error_of([&] { out["loss"]; }),
      HasSubstr(
          "interchange.output: the program returned no tensor 'loss'; it returned logits, hidden"));
  EXPECT_THAT(error_of([&] { net->forward(at::ones({2, 3})); }),
              StartsWith("interchange.output: the program returned "));
}

TEST(ExportedModule, TiesParametersOfOneRecord) {
  SmallProgram program = small_linear(at::ones({3, 3}), at::ones({3}));
  program.parameter("head.weight", at::ones({3, 3}));
  program.weights_config["head.weight"]["path_name"] = "weight_0";
  // Inputs come last in Python; their order is of no account here.
  const auto net = loaded(program);
  EXPECT_TRUE(
      net->named_parameters()["head.weight"].is_same(net->named_parameters()["lin.weight"]));
  EXPECT_EQ(named_parameters(*net).size(), 2U);
}

/// Dropout, and batch norm with its count, as nn.BatchNorm1d in training exports them.
SmallProgram with_modes(bool training) {
  SmallProgram program;
  program.module("bn");
  program.module("drop");
  program.parameter("bn.weight", at::ones({3}));
  program.parameter("bn.bias", at::zeros({3}));
  program.buffer("bn.running_mean", at::zeros({3}));
  program.buffer("bn.running_var", at::ones({3}));
  program.tensor("buffer", "bn.num_batches_tracked", at::zeros({}, at::kLong));
  program.graph["tensor_values"]["b_bn.num_batches_tracked"]["dtype"] = 5;
  program.weights_config["bn.num_batches_tracked"]["tensor_meta"]["dtype"] = 5;
  program.input("x", meta_of({-1, 3}));
  if (training) {
    program.node("torch.ops.aten.add_.Tensor",
                 {{"self", tensor_named("b_bn.num_batches_tracked")}, {"other", {{"as_int", 1}}}},
                 "count", "bn");
  }
  program.node("torch.ops.aten.batch_norm.default",
               {{"input", tensor_named("x")},
                {"weight", tensor_named("p_bn.weight")},
                {"bias", tensor_named("p_bn.bias")},
                {"running_mean", tensor_named("b_bn.running_mean")},
                {"running_var", tensor_named("b_bn.running_var")},
                {"training", {{"as_bool", training}}},
                {"momentum", {{"as_float", 0.1}}},
                {"eps", {{"as_float", 1e-5}}},
                {"cudnn_enabled", {{"as_bool", true}}}},
               "h", "bn");
  program.node("torch.ops.aten.dropout.default",
               {{"input", tensor_named("h")},
                {"p", {{"as_float", 0.5}}},
                {"train", {{"as_bool", training}}}},
               "y", "drop");
  program.output("y");
  return program;
}

struct Plain : torch::nn::Module {
  torch::nn::BatchNorm1d bn = register_module("bn", torch::nn::BatchNorm1d(3));
  torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.5));
  at::Tensor forward(const at::Tensor& x) { return drop->forward(bn->forward(x)); }
};

template <class Net>
at::Tensor stepped(Net& net, bool training) {
  net.train(training);
  torch::manual_seed(3);
  return net.forward(at::arange(12, at::kFloat).view({4, 3}).sin()).detach();
}

class ExportedModes : public ::testing::TestWithParam<bool> {};

TEST_P(ExportedModes, AreSwitchedByTrainAndEvalAsLibTorchs) {
  const auto net = loaded(with_modes(GetParam()));
  EXPECT_EQ(net->is_training(), GetParam());
  Plain plain;
  for (const bool training : {true, false, true, true, false}) {
    EXPECT_TRUE(at::equal(stepped(*net, training), stepped(plain, training))) << training;
  }
  for (const auto& buffer : plain.named_buffers()) {
    EXPECT_TRUE(at::equal(net->named_buffers()[buffer.key()], buffer.value())) << buffer.key();
  }
  // A part alone, as frozen batch norm.
  net->train();
  plain.train();
  net->named_children()["bn"]->eval();
  plain.bn->eval();
  torch::manual_seed(3);
  const at::Tensor x = at::ones({4, 3}), got = net->forward(x);
  torch::manual_seed(3);
  EXPECT_TRUE(at::equal(got, plain.forward(x)));
}
INSTANTIATE_TEST_SUITE_P(Exported, ExportedModes, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "InTraining" : "InEvaluation");
});

SmallProgram with_attention(double rate) {
  SmallProgram program = with_modes(false);
  program.graph["nodes"].erase(0);
  program.graph["nodes"][0]["inputs"][0]["arg"] = tensor_named("x");
  program.node("torch.ops.aten.scaled_dot_product_attention.default",
               {{"query", tensor_named("y")},
                {"key", tensor_named("y")},
                {"value", tensor_named("y")},
                {"dropout_p", {{"as_float", rate}}}},
               "z", "attention");
  program.graph["outputs"] = json::array({tensor_named("z")});
  program.output_specs[0]["user_output"]["arg"] = tensor_named("z");
  return program;
}

TEST(ExportedModule, AskedToTrainWithoutARateOfAttentionsDropoutIsAnError) {
  const auto net = loaded(with_attention(0));
  EXPECT_FALSE(net->is_training());
  EXPECT_THAT(error_of([&] { net->train(); }),
              AllOf(StartsWith("interchange.mode: this program was exported in evaluation mode"),
                    HasSubstr("scaled_dot_product_attention"), HasSubstr("attention_dropout")));
  const auto told = loaded(with_attention(0), {.attention_dropout = 0.5});
  told->eval();
  const at::Tensor x = at::rand({4, 3}), quiet = told->forward(x);
  EXPECT_TRUE(at::equal(told->forward(x), quiet));
  told->train();
  EXPECT_FALSE(at::equal(told->forward(x), told->forward(x)));
}

SmallProgram with_noise() {
  SmallProgram program = two_inputs();
  program.node("torch.ops.aten.rand_like.default", {{"self", tensor_named("z")}}, "noise", "",
               "File \"drop_path.py\", line 3, in forward\n    torch.rand_like(z)");
  program.node("torch.ops.aten.mul.Tensor",
               {{"self", tensor_named("z")}, {"other", tensor_named("noise")}}, "out");
  program.graph["outputs"] = json::array({tensor_named("out")});
  program.output_specs[0]["user_output"]["arg"] = tensor_named("out");
  return program;
}

TEST(ExportedModule, ThatDrawsRandomNumbersAsksHowItIsEvaluated) {
  EXPECT_THAT(error_of([] { loaded(with_noise())->eval(); }),
              AllOf(StartsWith("interchange.mode: "), HasSubstr("drop_path.py:3 in forward"),
                    HasSubstr("draws random numbers"), HasSubstr("ExportedOptions::evaluation")));
  EXPECT_EQ(error_of([] { loaded(with_noise(), {.same_in_evaluation = true})->eval(); }),
            "no error");
  const Scratch scratch;
  two_inputs().write(scratch / "eval.pt2");
  const auto net = loaded(with_noise(), {.evaluation = scratch / "eval.pt2"});
  const at::Tensor x = at::ones({2, 3});
  EXPECT_FALSE(at::equal(net->forward(x, x), x + x));
  net->eval();
  EXPECT_TRUE(at::equal(net->forward(x, x), x + x));
}

TEST(ExportedModule, NamesAllThatItCannotRunWithTheLinesOfPython) {
  SmallProgram program = two_inputs();
  program.node("torch.ops.somebody.twice.default", {{"x", tensor_named("z")}}, "a", "",
               "File \"net.py\", line 3, in forward\n    twice(z)");
  program.node("torch.ops.higher_order.cond", {{"", tensor_named("z")}}, "b", "",
               "File \"net.py\", line 4, in forward\n    torch.cond(z)");
  EXPECT_THAT(
      refusal(program),
      AllOf(StartsWith("interchange.unsupported: "),
            HasSubstr("torch.ops.somebody.twice.default (a) at net.py:3 in forward: twice(z)"),
            HasSubstr("torch.ops.higher_order.cond (b) at net.py:4")));
  SmallProgram object = two_inputs();
  object.node("torch.ops.aten.relu.default",
              {{"self", {{"as_custom_obj", {{"name", "o"}, {"class_fqn", "c"}}}}}}, "a", "",
              "File \"net.py\", line 5, in forward\n    relu(o)");
  EXPECT_THAT(refusal(object),
              AllOf(StartsWith("interchange.unsupported: "),
                    HasSubstr("as_custom_obj of torch.ops.aten.relu.default at net.py:5")));
}

// A library of the program's own, with a gradient.
at::Tensor thrice(const at::Tensor& x) { return x * 3; }
TORCH_LIBRARY(levin_interchange_test, library) {
  library.def("thrice(Tensor x) -> Tensor", &thrice);
}

TEST(ExportedModule, RunsOperatorsThatALibraryHasRegistered) {
  SmallProgram program = small_linear(weight(), bias());
  program.node("torch.ops.levin_interchange_test.thrice.default", {{"x", tensor_named("y")}}, "z");
  program.graph["outputs"] = json::array({tensor_named("z")});
  program.output_specs[0]["user_output"]["arg"] = tensor_named("z");
  const auto net = loaded(program);
  const at::Tensor x = at::ones({2, 3}), out = net->forward(x);
  EXPECT_TRUE(at::equal(out.detach(), at::linear(x, weight(), bias()) * 3));
  out.sum().backward();
  EXPECT_TRUE(at::equal(net->parameters()[1].grad(), at::full({2}, 6.0)));
}

// LibTorch's error stays what it is, with the node's place.
TEST(ExportedModule, AnErrorInANodeNamesItsLineOfPython) {
  SmallProgram program = small_linear(weight(), at::full({3}, 0.5));
  const auto net = loaded(program);
  try {
    net->forward(at::ones({2, 3}));
    FAIL() << "a bias of 3 fitted 2 outputs";
  } catch (const c10::Error& error) {
    EXPECT_THAT(
        error.what_without_backtrace(),
        HasSubstr(
            "in torch.ops.aten.linear.default (y) at net.py:7 in forward: return self.lin(x)"));
  }
}

std::string changed(const std::function<void(json&)>& change) {
  const Scratch scratch;
  const SmallProgram program = small_linear(weight(), bias());
  json text = program.text();
  change(text);
  program.write(scratch / "net.pt2", text.dump());
  return error_of([&] { load_exported(scratch / "net.pt2"); });
}

TEST(ExportedModule, OfAProgramThatIsNoneIsAnErrorThatSaysWhy) {
  const auto graph = [](json& text) -> json& { return text["graph_module"]["graph"]; };
  EXPECT_THAT(
      changed([](json& text) { text["schema_version"]["major"] = 9; }),
      AllOf(HasSubstr("interchange.archive: "), HasSubstr("version 9.20"), HasSubstr("wanted 8")));
  EXPECT_THAT(changed([](json& text) { text = 3; }), HasSubstr("is not a JSON object"));
  EXPECT_THAT(changed([](json& text) { text["graph_module"].erase("signature"); }),
              HasSubstr("an object has no 'signature'"));
  EXPECT_THAT(changed([&](json& text) {
                graph(text)["nodes"][0]["inputs"][0]["arg"] = tensor_named("nobody");
              }),
              HasSubstr("'nobody' is used, but no node made it"));
  EXPECT_THAT(changed([&](json& text) { graph(text)["nodes"][0]["inputs"].erase(1); }),
              HasSubstr("lacks the argument 'weight'"));
  EXPECT_THAT(changed([&](json& text) { graph(text)["nodes"][0]["inputs"][0]["name"] = "odd"; }),
              HasSubstr("'odd'"));
  EXPECT_THAT(changed([&](json& text) { graph(text)["tensor_values"]["x"]["dtype"] = 99; }),
              HasSubstr("the dtype 99 is unknown"));
  EXPECT_THAT(changed([&](json& text) {
                text["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = "[1, 2]";
              }),
              HasSubstr("interchange.archive: "));
  EXPECT_THAT(
      changed([&](json& text) { text["graph_module"]["signature"]["input_specs"].erase(0); }),
      HasSubstr("the numbers of input_specs and inputs differ"));
}

TEST(ExportedModule, OfTensorsThatDoNotFitTheirRecordsIsAnError) {
  const auto told = [](const std::function<void(SmallProgram&)>& change) {
    SmallProgram program = small_linear(weight(), bias());
    change(program);
    return refusal(program);
  };
  EXPECT_THAT(told([](SmallProgram& p) {
                p.weights_config["lin.weight"]["tensor_meta"]["sizes"][0]["as_int"] = int64_t{1}
                                                                                      << 62;
              }),
              HasSubstr("'lin.weight' is larger than its record"));
  EXPECT_THAT(told([](SmallProgram& p) {
                p.weights_config["lin.weight"]["tensor_meta"]["sizes"][0]["as_int"] = -2;
              }),
              HasSubstr("the sizes of 'lin.weight' are not integers"));
  EXPECT_THAT(told([](SmallProgram& p) {
                p.weights_config["lin.weight"]["tensor_meta"]["strides"][0]["as_int"] = 100;
              }),
              HasSubstr("larger than its record"));
  EXPECT_THAT(
      told([](SmallProgram& p) { p.weights_config["lin.weight"]["path_name"] = "../weight_0"; }),
      HasSubstr("missing or damaged"));
  EXPECT_THAT(told([](SmallProgram& p) { p.weights_config.erase("lin.bias"); }),
              HasSubstr("no values for 'lin.bias'"));
  EXPECT_THAT(
      told([](SmallProgram& p) { p.weights_config["more"] = p.weights_config["lin.bias"]; }),
      HasSubstr("values that the program does not have: more"));
  EXPECT_THAT(told([](SmallProgram& p) { p.weights_config["lin.bias"]["use_pickle"] = true; }),
              HasSubstr("interchange.unsupported: 'lin.bias' is stored as a pickle"));
}

TEST(ExportedModule, OfAnotherFileSaysWhichReaderThereIs) {
  const Scratch scratch;
  std::ofstream(scratch / "text.pt2") << "text";
  EXPECT_THAT(error_of([&] { load_exported(scratch / "text.pt2"); }),
              HasSubstr("interchange.archive: "));
  EXPECT_THAT(error_of([&] { load_exported(scratch / "none.pt2"); }), StartsWith("files.read: "));
  torch::save(at::ones({2}), (scratch / "tensor.pt").string());
  EXPECT_THAT(error_of([&] { load_exported(scratch / "tensor.pt"); }),
              AllOf(HasSubstr("is not a torch.export program"), HasSubstr("load_weights")));
}

// Each is loaded, or is an Error: nothing else, and no memory beyond the file's size.
TEST(ExportedModule, OfADamagedFileIsLoadedOrAnError) {
  const Scratch scratch;
  small_linear(weight(), bias()).write(scratch / "net.pt2");
  std::ifstream in(scratch / "net.pt2", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const auto try_file = [&](const std::string& bytes) {
    std::ofstream(scratch / "other.pt2", std::ios::binary) << bytes;
    try {
      load_exported(scratch / "other.pt2");
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_TRUE(try_file(whole));
  size_t num_refused = 0, num_tried = 0;
  for (size_t cut = 0; cut < whole.size(); cut += 97) {
    EXPECT_FALSE(try_file(whole.substr(0, cut))) << cut;
  }
  for (size_t at = 0; at < whole.size(); at += 13) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    num_refused += try_file(flipped) ? 0 : 1;
    ++num_tried;
  }
  EXPECT_GT(num_refused, num_tried / 10);
}

}  // namespace
}  // namespace levin::test::exported_module
