// Each option of each subcommand with an empty value, without one, and twice: it is used, or an error names it, and no
// option takes the one behind it for its value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "levin/base/error.h"
#include "tests/support/scratch.h"
#include "tools/command.h"

namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStdout;
using Words = std::vector<std::string>;

struct Tool {
  Words name;  ///< as it is called
  int (*run)(int argc, char** argv);
  Words wanted = {};  ///< what it does not go without
};

const std::vector<Tool>& tools_of_levin() {
  namespace tools = levin::tools;
  static const std::vector<Tool> all = {
      {{"run"}, tools::run},
      {{"config"}, tools::config},
      {{"plan"}, tools::plan},
      {{"graph"}, tools::graph},
      {{"xla", "check"}, tools::xla},
      {{"ckpt", "inspect"}, tools::ckpt},
      {{"ckpt", "verify"}, tools::ckpt},
      {{"ckpt", "diff"}, tools::ckpt},
      {{"ckpt", "convert"}, tools::ckpt},
      {{"ckpt", "merge"}, tools::ckpt},
      {{"generate"}, tools::generate, {"--model", "none"}},
      {{"tokenize"}, tools::tokenize, {"none"}},
      {{"test"}, tools::test},
      {{"finetune", "sft"}, tools::finetune},
  };
  return all;
}

/// What it says: its output, or its error.
std::string said_by(const Tool& tool, const Words& more) {
  Words words = tool.name;
  words.insert(words.end(), more.begin(), more.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  CaptureStdout();
  try {
    tool.run(static_cast<int>(arguments.size()), arguments.data());
  } catch (const levin::Error& error) {
    GetCapturedStdout();
    return error.what();
  }
  return GetCapturedStdout();
}

/// The names that --help shows, of which a row has one or two: "-n, --nproc-per-node".
Words options_of(const Tool& tool) {
  Words options;
  const std::regex row("^  (?:-[a-z], )?(--[a-z0-9-]+)(?:, -[a-z])?([ \\[].*)?");
  std::istringstream lines(said_by(tool, {"--help"}));
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_match(line, found, row)) options.push_back(found[1]);
  }
  return options;
}

constexpr const char* kUnknown = "--no-such-option";

/// Behind the words, an option that there is not.
std::string said_before_unknown(const Tool& tool, Words words) {
  words.emplace_back(kUnknown);
  if (!words[0].starts_with("--model")) {
    words.insert(words.end(), tool.wanted.begin(), tool.wanted.end());
  }
  return said_by(tool, words);
}

bool takes_value(const Tool& tool, const std::string& option) {
  return said_before_unknown(tool, {option}).find(option + " got no value") != std::string::npos;
}

TEST(ToolOptions, HelpShowsEachOptionOnceInOneSpelling) {
  for (const Tool& tool : tools_of_levin()) {
    std::set<std::string> seen;
    for (const std::string& option : options_of(tool)) {
      // Alone, and before a word.
      EXPECT_TRUE(seen.insert(option).second || option == "--help")
          << tool.name[0] << " " << option;
      EXPECT_EQ(option.find('_'), std::string::npos) << option;
    }
    EXPECT_TRUE(seen.contains("--help")) << tool.name[0];
  }
}

TEST(ToolOptions, NoOptionTakesTheOneBehindItForItsValue) {
  for (const Tool& tool : tools_of_levin()) {
    for (const std::string& option : options_of(tool)) {
      // These end before.
      if (option.starts_with("--help") || option == "--print-config") continue;
      // Of a switch the option behind it is found to be none; all others have no value.
      EXPECT_THAT(said_before_unknown(tool, {option}), HasSubstr(kUnknown))
          << tool.name[0] << " " << option;
    }
  }
}

TEST(ToolOptions, AnEmptyValueTakesNoWordForItself) {
  for (const Tool& tool : tools_of_levin()) {
    for (const std::string& option : options_of(tool)) {
      std::vector<Words> spellings = {{option + "="}};
      if (takes_value(tool, option)) spellings.push_back({option, ""});
      for (const Words& words : spellings) {
        const std::string said = said_before_unknown(tool, words);
        EXPECT_TRUE(said.find(kUnknown) != std::string::npos ||
                    said.find(option + ": got") != std::string::npos)
            << tool.name[0] << " " << words[0] << ": " << said;
      }
    }
  }
}

TEST(ToolOptions, ARunReadsWhatConfigWrote) {
  const levin::test::Scratch scratch;
  const std::string file = (scratch / "run.toml").string();
  const auto& tools = tools_of_levin();
  EXPECT_THAT(said_by(tools[1], {"--output", file, "-n", "3", "--max-restarts", "2", "--tee=3"}),
              HasSubstr("levin run --config " + file + " reads it"));
  const auto script = [&](const Words& more) {
    Words words = {"--config", file, "--print-manifest=sbatch"};
    words.insert(words.end(), more.begin(), more.end());
    words.emplace_back("./train");
    return said_by(tools[0], words);
  };
  EXPECT_THAT(script({}), HasSubstr("-n 3 --max-restarts 2 --tee 3"));
  EXPECT_THAT(script({"--max-restarts", "4"}), HasSubstr("-n 3 --max-restarts 4 --tee 3"));
  // As levin config of an earlier version spelt it.
  levin::test::put(scratch / "run.toml", "nproc-per-node=5\nnnodes=\"1\"\n");
  EXPECT_THAT(script({}), HasSubstr("-n 5 -- ./train"));
}

TEST(ToolOptions, OfARunsOptionGivenTwiceTheLastCounts) {
  const Tool& run = tools_of_levin()[0];
  const std::regex token("[0-9a-f]{32,}");
  for (const std::string& option : options_of(run)) {
    if (option == "--config" || !takes_value(run, option)) continue;
    const auto said = [&](Words words) {
      words.insert(words.end(), {"--print-manifest", "x"});
      return std::regex_replace(said_by(run, words), token, "");
    };
    EXPECT_EQ(said({option + "=2", option + "=1"}), said({option, "1"})) << option;
  }
}

}  // namespace
