// levin export as main() calls it, with programs that stand in for those of a Trainer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tools/command.h"

namespace levin::test::export_tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ExportTool : public ::testing::Test {
 protected:
  /// The error, or "no error".
  std::string run(std::vector<std::string> words) {
    words.insert(words.begin(), "export");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::testing::internal::CaptureStdout();
    const std::string error =
        error_of([&] { tools::export_module(static_cast<int>(words.size()), arguments.data()); });
    printed_ = ::testing::internal::GetCapturedStdout();
    return error;
  }
  /// A program that writes to the file it was asked for what it was asked with.
  std::vector<std::string> asked(std::vector<std::string> more) const {
    std::vector<std::string> words = {"sh", "-c",
                                      "echo \"$LEVIN_EXPORT_CKPT|$LEVIN_EXPORT_DYNAMIC|"
                                      "$LEVIN_EXPORT_TRAINING|$*\" > \"$LEVIN_EXPORT_TO\"",
                                      "program"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string file() const { return (scratch_ / "net.pt2").string(); }
  std::string written() const {
    std::ostringstream text;
    text << std::ifstream(file()).rdbuf();
    return text.str();
  }

  Scratch scratch_;
  std::string printed_;
};

TEST_F(ExportTool, AsksTheProgramByItsEnvironment) {
  EXPECT_EQ(run(asked({"-o", file(), "--ckpt-path", "best", "--dynamic", "x:0:max=9", "--dynamic",
                       "y:1:name=rows", "--train", "fit", "--lr", "0.1"})),
            "no error");
  EXPECT_EQ(printed_, file() + "\n");
  EXPECT_EQ(written(), "best|x:0:max=9;y:1:name=rows|1|fit --lr 0.1\n");
}

TEST_F(ExportTool, LeavesToTheProgramWhatNobodySays) {
  EXPECT_EQ(run(asked({"-o", file(), "--lr", "0.1"})), "no error");
  EXPECT_EQ(written(), "|||--lr 0.1\n");
}

TEST_F(ExportTool, SaysWhatIsWrong) {
  EXPECT_THAT(run({}), StartsWith("tools.program: got no program"));
  EXPECT_THAT(run({"true", "-o", file()}),
              AllOf(StartsWith("tools.program: 'true' ended and wrote no "),
                    HasSubstr("it called fit of no Trainer")));
  EXPECT_THAT(run({"false", "-o", file()}), HasSubstr("'false' ended with code 1, wanted 0"));
  EXPECT_THAT(run({"--no-such-option", "true"}), StartsWith("tools.export: "));
  // A file of another day is not taken for this one's.
  std::ofstream(file()) << "old";
  EXPECT_THAT(run({"true", "-o", file()}), HasSubstr("wrote no "));
  EXPECT_EQ(written(), "old");
  for (const char* dims : {"x", "x:", ":0", "x:y", "x:0:max", "x:0:most=3", "x:0:name="}) {
    EXPECT_THAT(run({"true", "--dynamic", dims, "-o", file()}), StartsWith("trainer.export: "))
        << dims;
  }
}

}  // namespace
}  // namespace levin::test::export_tool
