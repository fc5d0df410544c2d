// levin export as main() calls it, with programs of the shell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tools/command.h"

namespace levin::test::export_command {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ExportCommand : public ::testing::Test {
 protected:
  std::string said(std::vector<std::string> words) {
    words.insert(words.begin(), "export");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    return error_of(
        [&] { tools::export_module(static_cast<int>(words.size()), arguments.data()); });
  }
  /// A program of these lines.
  std::string program(const std::string& lines) {
    const auto file = scratch_ / "program";
    std::ofstream(file) << "#!/bin/sh\n" << lines << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file.string();
  }
  std::string text(const std::string& name) {
    std::ifstream stream(scratch_ / name);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  Scratch scratch_;
  std::string file_ = (scratch_ / "net.pt2").string();
};

TEST_F(ExportCommand, TellsTheProgramByItsEnvironment) {
  const std::string writes = program(
      "echo \"$@\" \"$LEVIN_EXPORT_CKPT\" \"$LEVIN_EXPORT_DYNAMIC\" > \"$LEVIN_EXPORT_TO\"");
  EXPECT_EQ(said({"-o", file_, "--ckpt-path", "best", "--dynamic", "x:0", "--dynamic", "x:1:min=2",
                  writes, "--layers", "3", "--", "--dynamic", "own"}),
            "no error");
  EXPECT_EQ(text("net.pt2"), "--layers 3 --dynamic own best x:0;x:1:min=2\n");
}

TEST_F(ExportCommand, SaysWhatIsWrongBeforeItStartsTheProgram) {
  const std::string marks = program("echo > \"$0.started\"");
  EXPECT_THAT(said({"-o", file_}), StartsWith("tools.export: got no program"));
  EXPECT_THAT(said({"--layers", marks}), StartsWith("tools.export: no option '--layers'"));
  for (const char* dims : {"x", "x:", ":0", "x:y", "x:0:max", "x:0:most=3", "x:0:name="}) {
    EXPECT_THAT(said({"-o", file_, marks, "--dynamic", dims}), StartsWith("trainer.export: "))
        << dims;
  }
  for (const std::string& place : {scratch_.str(), (scratch_ / "no" / "net.pt2").string()}) {
    EXPECT_THAT(said({"-o", place, marks}), StartsWith("tools.export: -o "));
  }
  EXPECT_FALSE(std::filesystem::exists(marks + ".started"));
}

TEST_F(ExportCommand, RefusesAProgramThatWritesNothingOrFails) {
  EXPECT_THAT(said({"-o", file_, program("exit 0")}),
              AllOf(StartsWith("tools.program: "), HasSubstr("it did not call fit of a Trainer")));
  EXPECT_THAT(said({"-o", file_, program("echo > \"$LEVIN_EXPORT_TO\"; exit 3")}),
              AllOf(StartsWith("tools.program: "), HasSubstr("code 3")));
  // What an earlier one left does not count.
  EXPECT_THAT(said({"-o", file_, program("exit 0")}), StartsWith("tools.program: "));
}

}  // namespace
}  // namespace levin::test::export_command
