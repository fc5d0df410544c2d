#include "levin/graph/graph.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>

#include "levin/files/safetensors.h"
#include "levin/graph/passes/passes.h"
#include "tests/graph/against_eager.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace {

using at::Tensor;
using levin::graph::Graph;
using levin::graph::GraphModule;
using levin::graph::Node;
using levin::graph::Opcode;
using levin::graph::parse;
using levin::graph::to_text;
using levin::graph::Value;
using levin::test::error_of;
using levin::test::Tensors;
using ::testing::HasSubstr;
using ::testing::StartsWith;

GraphModule two_relus() {
  return levin::trace([](const Tensor& x) { return torch::relu(torch::relu(x) * 2 - 1); },
                      {torch::ones({3})});
}

TEST(Graph, ReadsAndChangesAsFxDoes) {
  GraphModule module = two_relus();
  Graph& graph = module.graph();
  EXPECT_EQ(graph.find_nodes("aten::relu").size(), 2U);
  EXPECT_EQ(graph.find_nodes("aten::mul.Scalar").size(), 1U);
  for (Node* node : graph.find_nodes("aten::relu")) {
    const auto at = graph.inserting_before(*node);
    Node& gelu = graph.call_function("aten::gelu", {*node->input(0)}, {{"approximate", "tanh"}});
    node->output().replace_all_uses_with(gelu.output());
    graph.erase_node(*node);
  }
  graph.lint();
  levin::graph::propagate_types(graph, {torch::ones({3})});
  const Tensor x = torch::randn({3});
  EXPECT_TRUE(torch::equal(module({x})[0], torch::gelu(torch::gelu(x, "tanh") * 2 - 1, "tanh")));
  EXPECT_EQ(graph.outputs()[0]->type().sizes, at::DimVector({3}));
  EXPECT_THAT(to_text(graph), HasSubstr("aten::gelu(%input, approximate=\"tanh\") : f32[3]"));
}

TEST(Graph, IsBuiltByHand) {
  Graph graph;
  Value& x = graph.placeholder("x", levin::graph::ValueType::of(torch::ones({2, 3})));
  Value& weight = graph.get_attr("weight", torch::full({3}, 2.0));
  Node& sum = graph.call_function("aten::add.Tensor", {x, weight}, {{"alpha", 3}});
  Node& halves = graph.call_function("aten::split.Tensor", {sum.output(), 1}, {}, 2);
  Node& noise = graph.call_function("aten::rand_like", {halves.output(1)});
  Node& more = graph.call_function("aten::mul.Tensor", {noise.output(), 0.5});
  graph.set_outputs({&halves.output(0), &more.output()});
  graph.lint();
  levin::graph::propagate_types(graph, {torch::ones({2, 3})});
  EXPECT_EQ(to_text(parse(to_text(graph))), to_text(graph));
  torch::manual_seed(1);
  const Tensor wanted = torch::rand({1, 3}) * 0.5;
  torch::manual_seed(1);
  const auto came = levin::graph::interpret(graph, {torch::ones({2, 3})}).outputs;
  EXPECT_TRUE(torch::equal(came[0], torch::full({1, 3}, 7.0)));
  EXPECT_TRUE(torch::equal(came[1], wanted));
}

TEST(Graph, DrawsThatAreInsertedComeInTheirPlace) {
  auto module =
      levin::trace([](const Tensor& x) { return x + torch::rand({3}); }, {torch::ones({3})});
  Graph& graph = module.graph();
  {
    const auto at = graph.inserting_before(*graph.find_nodes("aten::rand").at(0));
    Node& first = graph.call_function("aten::rand_like",
                                      {graph.find_nodes(Opcode::kPlaceholder)[0]->output()});
    graph.set_outputs({graph.outputs()[0], &first.output()});
  }
  graph.lint();
  torch::manual_seed(1);
  const Tensor first = torch::rand({3}), second = torch::rand({3});
  torch::manual_seed(1);
  const auto came = module({torch::ones({3})});
  EXPECT_TRUE(torch::equal(came[1], first));
  EXPECT_TRUE(torch::equal(came[0], second + 1));
  EXPECT_EQ(to_text(parse(to_text(graph))), to_text(graph));
}

TEST(Graph, DeadCodeGoesAndWhatHasAnEffectStays) {
  auto module = levin::trace(
      [](const Tensor& x) {
        const Tensor unused = x.exp().sin();
        x.add_(1);
        return x * 2;
      },
      {torch::ones({3})});
  EXPECT_EQ(module.graph().eliminate_dead_code(), 2U);
  module.graph().lint();
  const Tensor x = torch::ones({3});
  EXPECT_TRUE(torch::equal(module({x})[0], torch::full({3}, 4.0)));
  EXPECT_TRUE(torch::equal(x, torch::full({3}, 2.0)));
}

TEST(Graph, AClonesNodesAreItsOwn) {
  GraphModule module = two_relus();
  Graph copy = module.graph().clone();
  EXPECT_EQ(to_text(copy), to_text(module.graph()));
  for (Node* node : copy.find_nodes("aten::relu")) {
    node->output().replace_all_uses_with(*node->input(0));
    copy.erase_node(*node);
  }
  copy.lint();
  EXPECT_EQ(module.graph().find_nodes("aten::relu").size(), 2U);
}

TEST(Graph, PatternsAreReplaced) {
  auto module = levin::trace(
      [](const Tensor& x) {
        const Tensor y = x * torch::sigmoid(x);
        const Tensor z = y * torch::sigmoid(y);
        const Tensor used_twice = torch::sigmoid(z);
        return std::tuple(z * used_twice + used_twice, z * torch::sigmoid(y));
      },
      {torch::randn({3})});
  const auto pattern =
      levin::trace([](const Tensor& x) { return x * torch::sigmoid(x); }, {torch::ones({1})});
  const auto silu =
      levin::trace([](const Tensor& x) { return torch::silu(x); }, {torch::ones({1})});
  const Tensor x = torch::randn({3});
  const auto before = levin::graph::interpret(module.graph(), {x}).outputs;
  // y's sigmoid has two users and z's too: x's alone can go.
  EXPECT_EQ(levin::graph::replace_pattern(module.graph(), pattern.graph(), silu.graph()), 2U);
  module.graph().lint();
  EXPECT_EQ(module.graph().find_nodes("aten::silu").size(), 2U);
  const auto after = module({x});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(torch::allclose(after[i], before[i]));
}

TEST(GraphErrors, NameWhatIsWrong) {
  GraphModule module = two_relus();
  Graph& graph = module.graph();
  EXPECT_THAT(error_of([&] { graph.erase_node(*graph.find_nodes("aten::relu")[0]); }),
              StartsWith("graph.erase: aten::relu has a result that aten::mul.Scalar uses"));
  EXPECT_THAT(error_of([&] { graph.call_function("aten::no_such", {}); }),
              StartsWith("graph.operator: got aten::no_such, wanted the name of an operator"));
  EXPECT_THAT(
      error_of([&] { graph.call_function("aten::relu", {}); }),
      StartsWith("graph.operator: got aten::relu without its argument self, which has no default"));
  EXPECT_THAT(error_of([&] { graph.call_function("aten::relu", {1, 2}); }),
              StartsWith("graph.operator: got 2 arguments for aten::relu, wanted at most 1"));
  EXPECT_THAT(
      error_of([&] { graph.call_function("aten::relu", {*graph.outputs()[0]}, {{"dim", 1}}); }),
      StartsWith("graph.operator: got 1 of 1 named arguments that aten::relu does not have"));
  graph.get_attr("weight", torch::ones({1}));
  EXPECT_THAT(error_of([&] { graph.get_attr("weight", torch::ones({1})); }),
              StartsWith("graph.name: got a second state tensor named weight"));
  EXPECT_THAT(error_of([&] { module({torch::ones({4})}); }),
              StartsWith("graph.input: input is f32[4], wanted f32[3]; trace"));
  EXPECT_THAT(error_of([&] { module({}); }), StartsWith("graph.input: got 0 inputs, wanted 1"));
  EXPECT_THAT(error_of([&] { module.bind("bias", {}); }),
              StartsWith("graph.state: got bias, wanted"));
}

TEST(GraphErrors, LintFindsWhatDoesNotFit) {
  const auto fault = [](const std::function<void(Graph&)>& change) {
    GraphModule module = two_relus();
    change(module.graph());
    return error_of([&] { module.graph().lint(); });
  };
  EXPECT_EQ(fault([](Graph&) {}), "no error");
  EXPECT_THAT(fault([](Graph& graph) {
                graph.find_nodes("aten::relu")[0]->set_argument(0, *graph.outputs()[0]);
              }),
              StartsWith("graph.lint: got a value that aten::relu returns later"));
  EXPECT_THAT(
      fault([](Graph& graph) { graph.find_nodes("aten::relu")[0]->set_argument(0, "text"); }),
      StartsWith("graph.lint: got str for self, wanted Tensor: %relu = aten::relu("));
  EXPECT_THAT(fault([](Graph& graph) { graph.placeholder("input", {}); }),
              StartsWith("graph.lint: got a second input of that name"));
  EXPECT_THAT(fault([](Graph& graph) {
                Value& state = graph.random_state();
                graph.call_function("aten::rand", {std::vector<int64_t>{2}});
                graph.call_function("aten::rand", {std::vector<int64_t>{2}});
                graph.find_nodes("aten::rand")[1]->set_argument(5, state);
              }),
              HasSubstr("a random state that others draw from too"));
  EXPECT_THAT(
      fault([](Graph& graph) { graph.set_updates({{graph.outputs()[0], graph.outputs()[0]}}); }),
      StartsWith("graph.lint: got an update of the result of aten::relu"));
}

TEST(GraphErrors, PatternsThatCannotBeReplacedAreNamed) {
  GraphModule module = two_relus();
  const auto error_with = [&](const auto& pattern) {
    const auto relu =
        levin::trace([](const Tensor& x) { return torch::relu(x); }, {torch::ones({1})});
    const auto traced = levin::trace(pattern, {torch::ones({1})});
    return error_of(
        [&] { levin::graph::replace_pattern(module.graph(), traced.graph(), relu.graph()); });
  };
  const Tensor weight = torch::ones({1});
  EXPECT_THAT(error_with([](const Tensor& x) { return x; }),
              HasSubstr("graph.pattern: the pattern has no operators"));
  EXPECT_THAT(error_with([&](const Tensor& x) { return x * weight; }),
              HasSubstr("the pattern has get_attr state_0"));
  EXPECT_THAT(error_with([](const Tensor& x) { return std::tuple(x + 1, x); }),
              HasSubstr("a pattern of 1 inputs and 2 outputs"));
  EXPECT_THAT(error_with([](const Tensor& x) { return x.add_(1); }),
              HasSubstr("the pattern writes to an input"));
}

TEST(GraphText, DamageIsNamedWithItsLine) {
  const auto fault = [](const std::string& text) { return error_of([&] { parse(text); }); };
  const std::string good = to_text(two_relus().graph());
  EXPECT_EQ(fault(good), "no error");
  for (size_t end = 0; end < good.find("return") + 6; ++end) {
    EXPECT_THAT(fault(good.substr(0, end)), StartsWith("graph.parse: ")) << end;
  }
  EXPECT_THAT(fault("%x = aten::nothing() : f32[1]"), StartsWith("graph.parse: line 1, at '()"));
  EXPECT_THAT(fault("\n%x = aten::relu(%y) : f32[1]"), HasSubstr("line 2"));
  EXPECT_THAT(fault("%x = placeholder[\"x\"] : f31[1]"), HasSubstr("wanted a type"));
  EXPECT_THAT(fault("%x = placeholder[\"x\"] : f32[-1]"), HasSubstr("wanted a number"));
  for (const char* strides : {"{}", "{1}", "{3, 1, 1}", "{9223372036854775807, 1}"}) {
    EXPECT_THAT(fault("%x = placeholder[\"x\"] : f32[2, 3]" + std::string(strides)),
                HasSubstr("one stride for each"));
  }
  EXPECT_THAT(fault("%x = placeholder[\"x\\"), HasSubstr("line 1, at '': wanted '\"'"));
  EXPECT_THAT(fault("return\nreturn\n%x = random_state() : random"),
              HasSubstr("wanted an update or nothing"));
}

TEST(GraphText, RefusesOperatorsThatReachBeyondTheirArguments) {
  const auto fault = [](const std::string& call) {
    return error_of([&] {
      parse("%x = placeholder[\"x\"] : f32[4]\n%i = placeholder[\"i\"] : i64[2]\n%y = " + call +
            " : f32[4]\nreturn %y\n");
    });
  };
  for (const char* call :
       {"aten::from_file(\"/etc/passwd\")", "aten::_unsafe_index.Tensor(%x, [%i])",
        "aten::_unsafe_index_put(%x, [%i], %x)", "aten::_sparse_coo_tensor_unsafe(%i, %x, [4])",
        "aten::_nested_view_from_buffer(%x, %i, %i, %i)", "aten::set_.source_Tensor(%x, %x)",
        "aten::_unsafe_masked_index(%x, %x, [%i], 0)", "aten::sparse_coo_tensor.indices(%i, %x)",
        "aten::_print(\"\")"}) {
    EXPECT_THAT(fault(call), StartsWith("graph.parse: line 3, ")) << call;
    EXPECT_THAT(fault(call),
                testing::AnyOf(HasSubstr("opens files"), HasSubstr("does not check its arguments"),
                               HasSubstr("beyond its arguments")))
        << call;
  }
  EXPECT_EQ(fault("aten::_unsafe_view(%x, [2, 2])"), "no error");
  EXPECT_EQ(fault("aten::relu(%x)"), "no error");
}

// Backward of indexing writes without a look at its indices, which are its own there.
TEST(GraphText, IndicesOfAGraphThatIsReadAreLookedAt) {
  const std::string text =
      "%x = placeholder[\"x\"] : f32[4]\n%i = placeholder[\"i\"] : i64[1]\n"
      "%v = placeholder[\"v\"] : f32[1]\n"
      "%y = aten::_index_put_impl(%x, [%i], %v, true, true) : f32[4]\nreturn %y\n";
  const Graph graph = parse(text);
  const auto put = [&](int64_t index) {
    return levin::graph::interpret(graph,
                                   {torch::zeros({4}), torch::tensor({index}), torch::ones({1})});
  };
  EXPECT_TRUE(torch::equal(put(2).outputs[0], torch::tensor({0.F, 0.F, 1.F, 0.F})));
  EXPECT_ANY_THROW(put(1 << 20));
}

TEST(GraphText, ViewsOfAGraphThatIsReadStayInTheirMemory) {
  for (const char* view :
       {"aten::_reshape_alias(%x, [1000000], [1])", "aten::as_strided(%x, [1000000], [1])",
        "aten::_unsafe_view(%x, [1000000])"}) {
    const Graph graph = parse(std::string("%x = placeholder[\"x\"] : f32[4]\n%y = ") + view +
                              " : f32[1000000]\nreturn %y\n");
    EXPECT_ANY_THROW(levin::graph::interpret(graph, {torch::zeros({4})})) << view;
  }
}

TEST(GraphText, TypesThatNoTensorCanHaveAndForeignWordsAreErrors) {
  const auto fault = [](const std::string& type) {
    return error_of([&] { parse("%x = placeholder[\"x\"] : " + type + "\nreturn %x\n"); });
  };
  for (const char* type : {"f32[9223372036854775807, 9223372036854775807]", "f32[4, 4]{1}",
                           "f32[4]{1, 1}", "f32[2, 2]{9223372036854775807, 9223372036854775807}",
                           "f32[4]@nowhere:0", "f32[4]@cpu:x", "f32[99999999999999999999]"}) {
    EXPECT_THAT(fault(type), StartsWith("graph.parse: ")) << type;
  }
  EXPECT_THAT(fault("\x1b[2J"), HasSubstr("\\x1b[2J"));
}

TEST(GraphText, IsGraphvizToo) {
  const std::string dot = levin::graph::to_graphviz(two_relus().graph());
  EXPECT_THAT(dot, StartsWith("digraph {"));
  EXPECT_THAT(dot, HasSubstr("label=\"aten::relu\\nf32[3]\""));
  EXPECT_THAT(dot, HasSubstr("-> "));
}

class GraphFile : public testing::Test {
 protected:
  static GraphModule make(const Tensor& weight) {
    return levin::trace([&](const Tensor& x) { return x.mm(weight.t()) + torch::rand({2, 3}); },
                        {torch::ones({2, 4})}, {.state = {{"net.weight", weight}}});
  }
  levin::test::Scratch folder_;
};

TEST_F(GraphFile, HoldsGraphAndState) {
  const Tensor weight = torch::randn({4, 3}).t();
  GraphModule module = make(weight);
  module.save(folder_.path() / "graph.safetensors");
  GraphModule loaded = GraphModule::load(folder_.path() / "graph.safetensors");
  EXPECT_EQ(to_text(loaded.graph()), to_text(module.graph()));
  const Tensor x = torch::randn({2, 4});
  torch::manual_seed(2);
  const Tensor wanted = module({x})[0];
  torch::manual_seed(2);
  EXPECT_TRUE(torch::equal(loaded({x})[0], wanted));
  EXPECT_FALSE(loaded.state()[0].tensor.is_alias_of(weight));
  EXPECT_EQ(loaded.state()[0].tensor.strides(), weight.strides());
}

TEST_F(GraphFile, AppearsWholeAndReplacesNothingBefore) {
  const auto path = folder_.path() / "graph.safetensors";
  make(torch::ones({3, 4})).save(path);
  const std::string before = levin::test::get(path);
  EXPECT_EQ(levin::test::run_child([&] {
              at::set_num_threads(1);
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{100, 100};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              const std::string error = error_of([&] { make(torch::zeros({3, 4})).save(path); });
              return error.starts_with("files.write: ") ? 0 : 2;
            }),
            0);
  EXPECT_EQ(levin::test::get(path), before);
  EXPECT_EQ(levin::test::names_in(folder_.path()).size(), 1U);
}

TEST_F(GraphFile, WhatLibTorchRefusesOfItIsAnError) {
  const auto path = folder_.path() / "graph.safetensors";
  const std::vector<float> values = {1, 2};
  const std::vector<levin::files::TensorEntry> entries = {
      {"w", "F32", {2}, std::as_bytes(std::span(values))}};
  for (const char* type : {"f32[2]{0}", "f32[2]{100000000000000000}", "f32[2]@cuda:99"}) {
    levin::files::write_safetensors(
        path, entries,
        {{"levin.graph", std::string("%w = get_attr[\"w\"] : ") + type + "\nreturn %w\n"}});
    EXPECT_THAT(error_of([&] { GraphModule::load(path); }), StartsWith("graph.")) << type;
  }
}

TEST_F(GraphFile, WithoutStateWantsItBound) {
  const Tensor weight = torch::randn({3, 4});
  make(weight).save(folder_.path() / "graph.safetensors", {.state = false});
  GraphModule loaded = GraphModule::load(folder_.path() / "graph.safetensors");
  EXPECT_THAT(error_of([&] { loaded({torch::ones({2, 4})}); }),
              StartsWith("graph.state: no tensor is bound to net.weight"));
  loaded.bind("net.weight", weight);
  EXPECT_EQ(loaded({torch::ones({2, 4})})[0].sizes(), at::IntArrayRef({2, 3}));
}

TEST_F(GraphFile, ForeignAndDamagedFilesAreNamed) {
  const auto path = folder_.path() / "graph.safetensors";
  const auto fault = [&] { return error_of([&] { GraphModule::load(path); }); };
  EXPECT_THAT(fault(), StartsWith("files.read: "));
  const std::vector<float> values = {1, 2};
  const std::vector<levin::files::TensorEntry> entries = {
      {"weight", "F32", {2}, std::as_bytes(std::span(values))}};
  levin::files::write_safetensors(path, entries, {{"format", "pt"}});
  EXPECT_THAT(fault(),
              testing::MatchesRegex("graph.load: .* has no entry levin.graph in its metadata.*"));
  const std::string text = "%weight = get_attr[\"weight\"] : f32[3]\nreturn %weight\n";
  levin::files::write_safetensors(path, entries, {{"levin.graph", text}});
  EXPECT_THAT(fault(), HasSubstr("holds weight as F32[2], wanted f32[3] as its graph has it"));
  levin::files::write_safetensors(
      path, entries, {{"levin.graph", "%bias = get_attr[\"bias\"] : f32[2]\nreturn\n"}});
  EXPECT_THAT(fault(), HasSubstr("lacks bias, a state tensor of its graph"));
  levin::files::write_safetensors(path, entries, {{"levin.graph", "nonsense"}});
  EXPECT_THAT(fault(), StartsWith("graph.parse: "));
  std::ofstream(path, std::ios::binary) << "not a safetensors file at all";
  EXPECT_THAT(fault(), StartsWith("files.safetensors: "));
}

TEST_F(GraphFile, RefusesWhatTextCannotHold) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
  const auto module = levin::trace([&] { return torch::rand({3}, generator); }, {});
  EXPECT_THAT(
      error_of([&] { module.save(folder_.path() / "graph.safetensors"); }),
      StartsWith("graph.save: got an argument <Generator> that the text format cannot hold"));
}

TEST(GraphInterpreter, NoticesAnOperatorThatGivesAnotherNumberOfValues) {
  Graph graph;
  Value& x = graph.placeholder("x", {});
  graph.set_outputs({&graph.call_function("aten::split.Tensor", {x, 1}, {}, 2).output()});
  EXPECT_THAT(error_of([&] { levin::graph::interpret(graph, {torch::ones({3})}); }),
              StartsWith("graph.interpret: aten::split.Tensor returned 3 values, wanted 2"));
}

}  // namespace
