// levin within a larger program: that of tests/embedded, case by case.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include "tests/launch/launcher.h"
#include "tests/support/child_process.h"
#include "tests/support/places.h"
#include "tests/support/scratch.h"

namespace {

using levin::test::Scratch;
using ::testing::EndsWith;
using ::testing::HasSubstr;

/// The code with which a case ends; its words go into a file of the folder.
int run_case(const std::string& name, const Scratch& scratch, bool frames = false) {
  return levin::test::run_child([&]() -> int {
    const int log = ::open((scratch / "log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    if (frames) ::setenv("LEVIN_FRAMES", "1", 1);
    const char* program = levin::test::embedded_program().c_str();
    ::execl(program, program, name.c_str(), scratch.str().c_str(), nullptr);
    return levin::test::kThrew;
  });
}

class Embedded : public ::testing::TestWithParam<const char*> {};

TEST_P(Embedded, LeavesTheProcessAsItWas) {
  const Scratch scratch;
  EXPECT_EQ(run_case(GetParam(), scratch), 0) << levin::test::get(scratch / "log");
}

constexpr const char* kCases[] = {"repeated",
                                  "nested",
                                  "threaded",
                                  "failed",
                                  "ignored_signal",
                                  "signal_in_an_inner_fit",
                                  "same_trainer_in_itself"};

INSTANTIATE_TEST_SUITE_P(Cases, Embedded, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param); });

TEST(EmbeddedProgram, HasNoOtherCases) {
  const Scratch scratch;
  EXPECT_EQ(levin::test::run_child([&]() -> int {
              ::dup2(::open((scratch / "list").c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
              const char* program = levin::test::embedded_program().c_str();
              ::execl(program, program, "--list", nullptr);
              return levin::test::kThrew;
            }),
            0);
  std::string wanted;
  for (const char* name : kCases) wanted += std::string(name) + "\n";
  EXPECT_EQ(levin::test::get(scratch / "list"), wanted);
}

TEST(Uncaught, AWrongShapeIsOneLineWithItsPlace) {
  const Scratch scratch;
  EXPECT_EQ(run_case("uncaught", scratch), 1);
  const std::string said = levin::test::get(scratch / "log");
  EXPECT_THAT(said, HasSubstr("error: "));
  EXPECT_THAT(said, HasSubstr("mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2) "
                              "[epoch 0, batch 1]"));
  EXPECT_EQ(said.find("frame #"), std::string::npos) << said;
  std::filesystem::remove(scratch / "came.0");
  EXPECT_EQ(run_case("uncaught", scratch, /*frames=*/true), -SIGABRT);
  EXPECT_THAT(levin::test::get(scratch / "log"), HasSubstr("[epoch 0, batch 1]"));
}

// Of two ranks, each in its own words: none is drowned in the other's frames.
TEST(Uncaught, AWrongShapeOfAllRanksIsOneLine) {
  const Scratch scratch;
  levin::test::Launcher launcher(
      scratch, {"-n", "2", levin::test::embedded_program(), "uncaught", scratch.str()});
  EXPECT_EQ(launcher.wait(), 1) << launcher.err();
  std::istringstream lines(launcher.err());
  std::vector<std::string> errors;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line.find("frame #"), std::string::npos) << line;
    if (line.find("(4x3 and 5x2)") != std::string::npos) errors.push_back(line);
  }
  ASSERT_EQ(errors.size(), 1U) << launcher.err();
  const std::string rank = errors[0].starts_with("[rank 0]") ? "0" : "1";
  EXPECT_TRUE(errors[0].starts_with("[rank " + rank + "] error: ")) << errors[0];
  EXPECT_NE(errors[0].find("(4x3 and 5x2) [rank " + rank + ", epoch 0, batch 1]"),
            std::string::npos)
      << errors[0];
  EXPECT_EQ(launcher.out(), "");
}

}  // namespace
