// A graph that somebody else has written says of its values what it likes: replay, which gives
// operators memory of these sizes, believes none of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/files/safetensors.h"
#include "levin/graph/graph.h"
#include "levin/graph/record/trace.h"
#include "levin/graph/replay/replay.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace {

using levin::graph::GraphModule;
using levin::graph::parse;
using levin::graph::Replay;
using levin::test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using torch::Tensor;

/// The text of a step with one line in place of another.
std::string with(std::string text, const std::string& line, const std::string& instead) {
  const size_t at = text.find(line);
  EXPECT_NE(at, std::string::npos) << line;
  return text.replace(at, line.size(), instead);
}

const std::string& step_text() {
  static const std::string text =
      "%x = placeholder[\"x\"] : f32[8, 4]\n"
      "%w = placeholder[\"w\"] : f32[3, 4]\n"
      "%t = aten::t(%w) : f32[4, 3]{1, 4}\n"
      "%mm = aten::mm(%x, %t) : f32[8, 3]\n"
      "%parts = aten::_log_softmax(%mm, 1, false) : f32[8, 3]\n"
      "%sort, %order = aten::sort(%parts, 1) : f32[8, 3], i64[8, 3]\n"
      "%a, %b = aten::split.Tensor(%sort, 4) : f32[4, 3], f32[4, 3]\n"
      "%sum = aten::add.Tensor(%a, %b) : f32[4, 3]\n"
      "%conv = aten::constant_pad_nd(%sum, [1, 1]) : f32[4, 5]\n"
      "return %conv, %order\n";
  return text;
}

std::vector<Tensor> inputs() { return {torch::randn({8, 4}), torch::randn({3, 4})}; }

TEST(ClaimedTypes, ThatAreRightAreReplayed) {
  const auto graph = parse(step_text());
  EXPECT_TRUE(graph.has_claimed_types());
  EXPECT_TRUE(graph.clone().has_claimed_types());
  Replay replay(graph);
  for (int i = 0; i < 3; ++i) {
    const auto given = inputs();
    const auto wanted = levin::graph::interpret(graph, given).outputs;
    const auto came = replay(given);
    EXPECT_TRUE(torch::equal(came[0], wanted[0]));
    EXPECT_TRUE(torch::equal(came[1], wanted[1]));
  }
}

struct Crafted {
  const char* line;
  const char* instead;
  const char* says;
};

TEST(ClaimedTypes, ThatAreWrongAreErrorsThatNameTheOperator) {
  const std::vector<Crafted> all = {
      // dtype, rank, size, strides, device
      {"%mm = aten::mm(%x, %t) : f32[8, 3]", "%mm = aten::mm(%x, %t) : u8[8, 3]",
       "aten::mm returns f32[8, 3], but the text of the graph says u8[8, 3]"},
      {"%order = aten::sort(%parts, 1) : f32[8, 3], i64[8, 3]",
       "%order = aten::sort(%parts, 1) : f32[8, 3], u8[8, 3]", "aten::sort returns i64[8, 3]"},
      {"1, false) : f32[8, 3]", "1, false) : f32[24]", "aten::_log_softmax returns f32[8, 3]"},
      {"[1, 1]) : f32[4, 5]", "[1, 1]) : f32[1]", "aten::constant_pad_nd returns f32[4, 5]"},
      {"[1, 1]) : f32[4, 5]", "[1, 1]) : f32[4, 5]{0, 0}", "says f32[4, 5]{0, 0}"},
      {"[1, 1]) : f32[4, 5]", "[1, 1]) : f32[4, 5]@meta", "says f32[4, 5]@meta"},
      {"[1, 1]) : f32[4, 5]", "[1, 1]) : none", "says none"},
      // the number of results
      {"%a, %b = aten::split.Tensor(%sort, 4) : f32[4, 3], f32[4, 3]",
       "%a, %b = aten::split.Tensor(%sort, 1) : f32[1, 3], f32[1, 3]",
       "returned 8 values, wanted 2"},
      {"%a, %b = aten::split.Tensor(%sort, 4) : f32[4, 3], f32[4, 3]",
       "%a, %b = aten::split.Tensor(%sort, 8) : f32[8, 3], f32[8, 3]",
       "returned 1 values, wanted 2"},
      // inputs for which the operators are not
      {"%w = placeholder[\"w\"] : f32[3, 4]", "%w = placeholder[\"w\"] : f32[3, 5]",
       "aten::t returns f32[5, 3]{1, 5}"},
      {"%w = placeholder[\"w\"] : f32[3, 4]", "%w = placeholder[\"w\"] : none", "graph.replay: "},
      // arguments that the operator does not take
      {"aten::_log_softmax(%mm, 1, false)", "aten::_log_softmax(%mm, 1, 7)", "graph.replay: "},
      // what it leaves behind
      {"return %conv, %order\n", "return %conv\nupdate %w = %conv\n",
       "the new value of w is f32[4, 5], wanted f32[3, 4]"},
      {"return %conv, %order\n", "return %conv\ngradient %w = %order\n",
       "the gradient of w is i64[8, 3], wanted f32[3, 4]"},
  };
  for (const Crafted& crafted : all) {
    const std::string text = with(step_text(), crafted.line, crafted.instead);
    EXPECT_THAT(error_of([&] {
                  Replay replay(parse(text));
                  replay(inputs());
                }),
                AllOf(StartsWith("graph.replay: "), HasSubstr(crafted.says)))
        << crafted.instead;
  }
}

TEST(ClaimedTypes, OfAFileAreLookedAtToo) {
  const levin::test::Scratch folder;
  const auto path = folder.path() / "graph.safetensors";
  const Tensor weight = torch::randn({3, 4});
  levin::trace([&](const Tensor& x) { return x.mm(weight.t()).relu(); }, {torch::ones({2, 4})},
               {.state = {{"weight", weight}}})
      .save(path);
  const auto graph = [&] { return GraphModule::load(path).graph().clone(); };
  const Tensor x = torch::randn({2, 4});
  EXPECT_TRUE(torch::equal(Replay(graph())({x})[0], x.mm(weight.t()).relu()));

  const levin::files::SafetensorsFile file(path);
  std::string text = file.metadata().at("levin.graph");
  text = with(text, ": f32[2, 3]", ": f32[1, 1]");
  const auto crafted = folder.path() / "crafted.safetensors";
  levin::files::write_safetensors(
      crafted, std::vector<levin::files::TensorEntry>(file.entries().begin(), file.entries().end()),
      {{"levin.graph", text}});
  EXPECT_THAT(error_of([&] { Replay(GraphModule::load(crafted).graph()); }),
              HasSubstr("graph.replay: aten::mm returns f32[2, 3]"));
}

TEST(ClaimedTypes, AreLookedAtWithoutATrace) {
  const Tensor weight = torch::ones({2});
  auto module = levin::trace([&](const Tensor& x) { return weight.add_(x).add(torch::rand({2})); },
                             {torch::ones({2})}, {.state = {{"weight", weight}}});
  const std::string text = to_text(module.graph());
  weight.fill_(1);
  GraphModule loaded(parse(text));
  loaded.bind("weight", weight);
  torch::manual_seed(3);
  const Tensor wanted = torch::rand({2});
  torch::manual_seed(3);
  Replay replay(loaded.graph());
  EXPECT_TRUE(torch::equal(weight, torch::ones({2})));
  EXPECT_TRUE(torch::equal(torch::rand({2}), wanted));
}

// What does not run on zeros runs on inputs of the user's, which leave no claims.
TEST(ClaimedTypes, GiveWayToThoseOfInputs) {
  auto graph = parse(
      "%x = placeholder[\"x\"] : f32[2, 2]\n"
      "%y, %info = aten::linalg_inv_ex(%x, check_errors=true) : f32[2, 2]{1, 2}, i32[]\n"
      "return %y\n");
  EXPECT_THAT(error_of([&] { Replay replay(graph); }), HasSubstr("call propagate_types"));
  const Tensor x = 2 * torch::eye(2);
  levin::graph::propagate_types(graph, {x});
  EXPECT_FALSE(graph.has_claimed_types());
  EXPECT_TRUE(torch::equal(Replay(graph)({x})[0], torch::eye(2) / 2));
}

}  // namespace
