// levin plan and levin graph as main() calls them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "levin/graph/graph.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/tools/step.h"
#include "tools/command.h"

namespace {

using levin::test::error_of;
using levin::test::mlp_step;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Subcommand = int (*)(int argc, char** argv);

/// What it prints.
std::string output_of(Subcommand subcommand, std::vector<std::string> words) {
  words.insert(words.begin(), "subcommand");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::testing::internal::CaptureStdout();
  try {
    EXPECT_EQ(subcommand(static_cast<int>(words.size()), arguments.data()), 0);
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  return ::testing::internal::GetCapturedStdout();
}

/// A tokenizer.json of four words.
std::string words_of(const levin::test::Scratch& scratch) {
  const auto file = scratch / "tokenizer.json";
  levin::test::put(file,
                   R"({"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel",
    "unk_token": "?", "vocab": {"?": 0, "so": 1, "it": 2, "goes": 3}}})");
  return file.string();
}

TEST(Tokenize, PrintsIdsOrTokensOrHowMany) {
  const levin::test::Scratch scratch;
  const std::string file = words_of(scratch);
  const auto tokenize = levin::tools::tokenize;
  EXPECT_EQ(output_of(tokenize, {file, "so it goes", "it x"}), "1 2 3\n2 0\n");
  EXPECT_EQ(output_of(tokenize, {scratch.str(), "so it goes", "it x", "--count"}), "5\n");
  EXPECT_EQ(output_of(tokenize, {file, "--long", "it goes"}),
            "      2      0     2  it                   it\n"
            "      3      3     7  goes                 goes\n");
  EXPECT_EQ(output_of(tokenize, {file, "--decode", "3,2"}), "goes it\n");
  levin::test::put(scratch / "lines", "so\nit goes\n");
  EXPECT_EQ(output_of(tokenize, {file, "--file", (scratch / "lines").string()}), "1\n2 3\n");
}

TEST(Tokenize, WithoutTokenizerOrTextIsAnError) {
  const levin::test::Scratch scratch;
  const auto said = [](std::vector<std::string> words) {
    return error_of([&] { output_of(levin::tools::tokenize, std::move(words)); });
  };
  EXPECT_THAT(said({words_of(scratch)}), StartsWith("tools.tokenize: got no text"));
  EXPECT_THAT(said({(scratch / "none").string(), "a"}),
              StartsWith("tools.tokenize: there is no '"));
  EXPECT_THAT(said({words_of(scratch), "--fast", "a"}), StartsWith("tools.tokenize: "));
}

class GraphCommands : public ::testing::Test {
 protected:
  GraphCommands() { step_.save(file_, {.state = false}); }

  std::string plan(const std::vector<std::string>& words) const {
    return output_of(levin::tools::plan, words);
  }
  std::string graph(const std::vector<std::string>& words) const {
    return output_of(levin::tools::graph, words);
  }
  /// A program that takes a flag of its own, --device, and fails without it.
  std::vector<std::string> program() const {
    const std::string script = "[ \"$1 $2\" = '--device 3' ] && cp '" + file_ + "' $LEVIN_GRAPH_TO";
    return {"sh", "-c", script, "program", "--device", "3"};
  }

  const levin::test::Scratch scratch_;
  const std::string file_ = (scratch_ / "step.safetensors").string();
  const levin::graph::GraphModule step_ = mlp_step();
};

TEST_F(GraphCommands, PlanPrintsTheReportOfTheDevice) {
  const std::string text = plan({"--device", "h100", "--top", "2", file_});
  EXPECT_THAT(text, StartsWith("a step of 2.63 k parameters, on h100"));
  EXPECT_THAT(text, HasSubstr("\nbackward "));
  EXPECT_THAT(text, HasSubstr("fits h100: "));
}

TEST_F(GraphCommands, PlanPrintsJson) {
  const auto json = nlohmann::json::parse(plan({"--json", "--top=2", file_}));
  EXPECT_EQ(json.at("device").get<std::string>(), "cpu");
  EXPECT_EQ(json.at("peak").at("largest").size(), 2U);
}

TEST_F(GraphCommands, PlanGivesAdviceForTpus) {
  EXPECT_THAT(plan({"--tpu", file_}),
              StartsWith("a step of 2.63 k parameters on v5e:2x4: 8 cores"));
  EXPECT_THAT(plan({"--tpu", "v4:2x2x2", file_}), HasSubstr(" on v4:2x2x2: 16 cores, each "));
  EXPECT_THAT(plan({"--tpu=v6e", file_}), HasSubstr(" on v6e: 1 core at "));
  const auto json = nlohmann::json::parse(plan({"--json", "--tpu", file_}));
  EXPECT_EQ(json.at("topology").get<std::string>(), "v5e:2x4");
  EXPECT_THAT(error_of([&] { plan({"--tpu=v9e:2x2", file_}); }),
              StartsWith("tools.tpu: got 'v9e:2x2'"));
}

TEST_F(GraphCommands, PlanHandsTheProgramItsFlags) {
  EXPECT_EQ(plan(program()), plan({file_}));
  std::vector<std::string> marked = program();
  marked.insert(marked.begin(), {"--top", "10", "--"});
  EXPECT_EQ(plan(marked), plan({file_}));
}

TEST_F(GraphCommands, GraphPrintsTextAndGraphviz) {
  EXPECT_EQ(graph({file_}), levin::graph::to_text(step_.graph()));
  EXPECT_EQ(graph({"--text", file_}), levin::graph::to_text(step_.graph()));
  EXPECT_THAT(graph({file_, "--dot"}), StartsWith("digraph {"));
}

TEST_F(GraphCommands, GraphWritesAPageAndSaysWhere) {
  const std::string page = (scratch_ / "step.html").string();
  EXPECT_EQ(graph({file_, "--html", page}), page + "\n");
  std::ifstream in(page);
  const std::string html{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(html, StartsWith("<!doctype html>"));
  EXPECT_THAT(html, EndsWith("</html>\n"));
  EXPECT_THAT(html, HasSubstr("<title>step</title>"));
}

TEST_F(GraphCommands, GraphLeavesToTheProgramWhatFollowsTheMark) {
  std::vector<std::string> marked = program();
  marked.insert(marked.begin(), {"--text", "--"});
  EXPECT_EQ(graph(marked), levin::graph::to_text(step_.graph()));
}

TEST_F(GraphCommands, HelpSaysWhatTheyDo) {
  EXPECT_THAT(plan({"--help"}), HasSubstr("levin plan [OPTIONS] PROGRAM [ARGUMENTS OF THE"));
  EXPECT_THAT(graph({"--help"}), HasSubstr("levin graph [OPTIONS] PROGRAM [ARGUMENTS OF THE"));
}

TEST_F(GraphCommands, SayWhatTheyDoNotTake) {
  const auto error_of_plan = [&](std::vector<std::string> words) {
    return error_of([&] { plan(words); });
  };
  const auto error_of_graph = [&](std::vector<std::string> words) {
    return error_of([&] { graph(words); });
  };
  EXPECT_THAT(error_of_plan({}), StartsWith("tools.program: got no program"));
  EXPECT_THAT(error_of_plan({"--device", "h10", file_}),
              AllOf(StartsWith("tools.plan: --device: got 'h10'"), HasSubstr("mean 'h100'?")));
  EXPECT_THAT(error_of_plan({"--devise", "h100", file_}),
              StartsWith("tools.plan: no option '--devise'; did you mean '--device'?"));
  EXPECT_THAT(error_of_plan({"--top", "many", file_}), StartsWith("tools.plan: "));
  EXPECT_THAT(error_of_graph({"--html", file_}), StartsWith("tools.graph: --html: got '"));
  EXPECT_THAT(error_of_graph({"--text", "--dot", file_}), StartsWith("tools.graph: "));
  EXPECT_THAT(error_of_graph({(scratch_ / "none.safetensors").string()}),
              StartsWith("files.read: "));
}

TEST(Finetune, WhatItCannotTrainIsAnErrorBeforeAnythingIsOpened) {
  const auto told = [](std::vector<std::string> words) {
    return error_of([&] { output_of(levin::tools::finetune, std::move(words)); });
  };
  EXPECT_THAT(told({"clasify"}), HasSubstr("tools.finetune: got 'clasify'"));
  EXPECT_THAT(told({"sft", "--model", "x"}), HasSubstr("tools.finetune: got no --data"));
  EXPECT_THAT(told({"sft", "--model", ".", "--data", "x", "--output", "."}),
              HasSubstr("tools.finetune: --output is the folder of the model"));
  EXPECT_THAT(told({"sft", "--model", "x", "--data", "x", "--merge"}),
              HasSubstr("tools.finetune: --merge"));
  EXPECT_THAT(told({"sft", "--model", "x", "--data", "x", "--lora-target", "q_proj"}),
              HasSubstr("tools.finetune: got --lora-target without --lora-r"));
  EXPECT_THAT(output_of(levin::tools::finetune, {"--help"}), HasSubstr("levin finetune TASK"));
  EXPECT_THAT(output_of(levin::tools::finetune, {"tag", "--help"}), HasSubstr("--lora-r"));
}

}  // namespace
