// What stands where a command is told to write, and is not its own: named, and left as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/graph/record/trace.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/tools/step.h"
#include "tools/command.h"

namespace {

namespace fs = std::filesystem;
using levin::State;
using levin::test::error_of;
using levin::test::get;
using levin::test::put;
using levin::test::Scratch;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Words = std::vector<std::string>;

int call(int (*command)(int, char**), Words words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::testing::internal::CaptureStdout();
  try {
    const int code = command(static_cast<int>(words.size()), arguments.data());
    ::testing::internal::GetCapturedStdout();
    return code;
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
}

/// A command that writes to a path, from what it finds in a folder.
struct Writer {
  const char* name;
  const char* output;  ///< its name
  int (*command)(int, char**);
  Words (*words)(const Scratch& from, const std::string& to);
  bool names_output = true;  ///< in its error; else it refuses what it reads
};

const Writer kWriters[] = {
    {"graph", "step.html", levin::tools::graph,
     [](const Scratch& from, const std::string& to) {
       return Words{"graph", (from / "step.safetensors").string(), "--html", to};
     }},
    {"config", "run.toml", levin::tools::config,
     [](const Scratch&, const std::string& to) {
       return Words{"config", "--output", to, "-n", "2"};
     }},
    {"convert", "weights.safetensors", levin::tools::ckpt,
     [](const Scratch& from, const std::string& to) {
       return Words{"ckpt", "convert", (from / "saved").string(), to};
     }},
    {"convert_to_folder", "weights", levin::tools::ckpt,
     [](const Scratch& from, const std::string& to) {
       return Words{"ckpt", "convert", (from / "saved").string(), to};
     }},
    {"merge", "merged", levin::tools::ckpt,
     [](const Scratch& from, const std::string& to) {
       return Words{"ckpt", "merge", (from / "saved").string(), to};
     },
     /*names_output=*/false},
};

class Outputs : public ::testing::TestWithParam<Writer> {
 protected:
  Outputs() {
    State weights;
    weights.set("w", torch::ones({2}));
    levin::save_checkpoint(from_ / "saved", {.weights = {{"model", weights}}, .training = {}});
    levin::test::mlp_step().save(from_ / "step.safetensors");
  }

  void expect_refused() const {
    const std::string told =
        error_of([&] { call(GetParam().command, GetParam().words(from_, to_.string())); });
    EXPECT_NE(told, "no error");
    if (GetParam().names_output) EXPECT_THAT(told, HasSubstr(to_.string()));
  }

  const Scratch from_, scratch_;
  const fs::path to_ = scratch_ / GetParam().output;
};

TEST_P(Outputs, AForeignFileStays) {
  put(to_, "somebody's");
  expect_refused();
  EXPECT_EQ(get(to_), "somebody's");
}

TEST_P(Outputs, AForeignFolderStays) {
  fs::create_directory(to_);
  put(to_ / "config.json", "somebody's");
  expect_refused();
  EXPECT_EQ(levin::test::names_in(to_), Words{"config.json"});
  EXPECT_EQ(get(to_ / "config.json"), "somebody's");
}

TEST_P(Outputs, ALinkStaysAndIsNotFollowed) {
  put(scratch_ / "mine", "somebody's");
  for (const char* goal : {"mine", "none"}) {
    fs::remove(to_);
    fs::create_symlink(scratch_ / goal, to_);
    expect_refused();
    EXPECT_EQ(fs::read_symlink(to_), scratch_ / goal);
  }
  EXPECT_EQ(get(scratch_ / "mine"), "somebody's");
  EXPECT_FALSE(fs::exists(scratch_ / "none"));
}

INSTANTIATE_TEST_SUITE_P(All, Outputs, ::testing::ValuesIn(kWriters),
                         [](const auto& each) { return std::string(each.param.name); });

// What a command has written it writes anew.
TEST(OwnOutputs, AreReplaced) {
  const Scratch scratch;
  levin::test::mlp_step().save(scratch / "step.safetensors");
  const std::string page = (scratch / "step.html").string(),
                    options = (scratch / "run.toml").string();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(call(levin::tools::graph,
                   {"graph", (scratch / "step.safetensors").string(), "--html", page}),
              0);
    EXPECT_EQ(
        call(levin::tools::config, {"config", "--output", options, "-n", std::to_string(i + 2)}),
        0);
  }
  EXPECT_THAT(get(page), StartsWith("<!doctype html>\n<!-- levin graph -->\n"));
  EXPECT_THAT(get(options), HasSubstr("3"));
}

}  // namespace
