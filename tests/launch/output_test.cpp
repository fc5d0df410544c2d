// What ranks print: whole lines with their rank on the console, and files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "tests/launch/launcher.h"

namespace {

using namespace levin::test;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string speaker(const Scratch& scratch) {
  return script(scratch, "rank.sh", "echo out $RANK; echo err $RANK >&2; printf end");
}

TEST(Output, LinesCarryTheRankWhenSeveralSpeak) {
  const Scratch scratch;
  Launcher launcher(scratch, {"-n", "2", speaker(scratch)});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(lines_of(launcher.out()), UnorderedElementsAre("[rank 0] out 0", "[rank 1] out 1",
                                                             "[rank 0] end", "[rank 1] end"));
  EXPECT_THAT(lines_of(launcher.err()), UnorderedElementsAre("[rank 0] err 0", "[rank 1] err 1"));
}

TEST(Output, AnErrorOfSeveralRanksIsShownOnce) {
  const std::string text = "data.loader: got 0 batches [rank $RANK, epoch 2]";
  for (const std::string& line : {"error: " + text, text}) {  // uncaught, or printed by a program
    const Scratch scratch;
    const auto program = script(scratch, "rank.sh", "echo \"" + line + "\" >&2; sleep 0.2; exit 1");
    Launcher launcher(scratch, {"-n", "3", "--rdzv-id", "job", "--log-dir", "logs", program});
    EXPECT_EQ(launcher.wait(), 1);
    const std::string err = launcher.err();
    EXPECT_EQ(std::ranges::count_if(lines_of(err),
                                    [](const std::string& shown) {
                                      return shown.find("got 0 batches") != std::string::npos;
                                    }),
              1)
        << err;
    EXPECT_THAT(err, HasSubstr(" ended with the error of rank "));
    EXPECT_THAT(err, HasSubstr("ended with exit code 1, by the error above"));
    EXPECT_THAT(get(scratch / "logs/job/attempt_0/2/stderr.log"), HasSubstr("[rank 2, epoch 2]\n"));
  }
}

TEST(Output, ErrorsThatDifferAreAllShown) {
  const Scratch scratch;
  const auto program =
      script(scratch, "rank.sh",
             "echo \"error: rows $((RANK + 5)) [rank $RANK]\" >&2; echo 'error: a line' >&2; "
             "sleep 0.2; exit 1");
  Launcher launcher(scratch, {"-n", "2", program});
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.err(), HasSubstr("[rank 0] error: rows 5 [rank 0]\n"));
  EXPECT_THAT(launcher.err(), HasSubstr("[rank 1] error: rows 6 [rank 1]\n"));
  EXPECT_THAT(launcher.err(), HasSubstr("[rank 1] error: a line\n"));
  EXPECT_THAT(launcher.err(), HasSubstr("  | error: a line\n"));
}

TEST(Output, OneRankSpeaksPlainly) {
  const Scratch scratch;
  Launcher launcher(scratch, {"-n", "1", speaker(scratch)});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(launcher.out(), "out 0\nend");
  EXPECT_EQ(launcher.err(), "err 0\n");
}

TEST(Output, LinesStayWholeWhenManyAreWritten) {
  const Scratch scratch;
  const auto program =
      script(scratch, "rank.sh",
             "i=0; while [ $i -lt 2000 ]; do printf 'a'; echo \"bc $i xxxxxxxxxxxxx"
             "xxxxxxxxxxxxxxxxxxxxx\"; i=$((i+1)); done");
  Launcher launcher(scratch, {"-n", "3", program});
  EXPECT_EQ(launcher.wait(), 0);
  const auto lines = lines_of(launcher.out());
  EXPECT_EQ(lines.size(), 6000U);
  for (const std::string& line : lines) {
    ASSERT_EQ(line.substr(0, 6), "[rank ") << line;
    ASSERT_EQ(line.substr(7, 5), "] abc") << line;
    ASSERT_EQ(line.find('a', 10), std::string::npos) << line;
  }
}

TEST(Output, LogDirKeepsOneFileForEachRankAndStream) {
  const Scratch scratch;
  Launcher launcher(scratch,
                    {"-n", "2", "--rdzv-id", "job", "--log-dir", "logs", speaker(scratch)});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(get(scratch / "logs/job/attempt_0/0/stdout.log"), "out 0\nend");
  EXPECT_EQ(get(scratch / "logs/job/attempt_0/1/stderr.log"), "err 1\n");
  EXPECT_THAT(launcher.out(), HasSubstr("[rank 1] out 1\n"));
}

// A second job of the same name, and what somebody has put where its files would be.
TEST(Output, LogsOfAnotherRunStay) {
  const Scratch scratch;
  const Words words = {"--rdzv-id", "job", "--log-dir", "logs"};
  const auto run = [&](const std::string& says) {
    Words all = words;
    all.push_back(script(scratch, "rank.sh", "echo " + says));
    EXPECT_EQ(Launcher(scratch, all).wait(), 0);
  };
  const auto folder = scratch / "logs/job/attempt_0/0";
  run("first");
  put(scratch / "mine", "somebody's");
  std::filesystem::create_symlink(scratch / "mine", folder / "stdout.2.log");
  run("second");
  EXPECT_EQ(get(folder / "stdout.log"), "first\n");
  EXPECT_EQ(get(folder / "stdout.3.log"), "second\n");
  EXPECT_EQ(get(scratch / "mine"), "somebody's");
}

TEST(Output, RedirectedStreamsAreKeptFromTheConsole) {
  const Scratch scratch;
  Launcher launcher(scratch, {"-n", "2", "--rdzv-id", "job", "--log-dir", "logs", "--redirects",
                              "1", "--tee", "1:1", speaker(scratch)});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(get(scratch / "logs/job/attempt_0/0/stdout.log"), "out 0\nend");
  EXPECT_EQ(get(scratch / "logs/job/attempt_0/1/stdout.log"), "out 1\nend");
  EXPECT_FALSE(std::filesystem::exists(scratch / "logs/job/attempt_0/0/stderr.log"));
  EXPECT_THAT(launcher.out(), AllOf(HasSubstr("[rank 1] out 1\n"), Not(HasSubstr("out 0"))));
  EXPECT_THAT(launcher.err(), HasSubstr("[rank 0] err 0"));
}

TEST(Output, EachAttemptHasItsOwnFiles) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh",
                              "echo $TORCHELASTIC_RESTART_COUNT; exit $((1 - "
                              "TORCHELASTIC_RESTART_COUNT))");
  Launcher launcher(scratch,
                    {"--max-restarts", "1", "--rdzv-id", "job", "--log-dir", "logs", program});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(get(scratch / "logs/job/attempt_0/0/stdout.log"), "0\n");
  EXPECT_EQ(get(scratch / "logs/job/attempt_1/0/stdout.log"), "1\n");
}

TEST(Output, TheFilterShowsSomeRanksOnly) {
  const Scratch scratch;
  Launcher launcher(scratch, {"-n", "3", "--local-ranks-filter", "0,2", speaker(scratch)});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(lines_of(launcher.err()), UnorderedElementsAre("[rank 0] err 0", "[rank 2] err 2"));
}

TEST(Output, AHiddenRanksLastLinesStandInTheSummary) {
  const Scratch scratch;
  const auto program =
      script(scratch, "rank.sh", "[ $RANK = 1 ] && { echo cause >&2; exit 9; }; sleep 100000");
  Launcher launcher(scratch, {"-n", "2", "--local-ranks-filter", "0", program});
  EXPECT_EQ(launcher.wait(), 9);
  EXPECT_THAT(launcher.err(), HasSubstr("\n  | cause\n"));
}

TEST(Output, ALogDirThatCannotBeMadeIsAClearError) {
  const Scratch scratch;
  put(scratch / "file", "");
  Launcher launcher(scratch, {"--log-dir", "file", "/bin/true"});
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_THAT(launcher.err(), HasSubstr("launch.log: cannot write file/"));
}

/// What `levin run` with these words shows on a terminal.
std::string shown_on_a_terminal(const Scratch& scratch, const Words& words) {
  int screen = -1, its_end = -1;
  EXPECT_EQ(::openpty(&screen, &its_end, nullptr, nullptr, nullptr), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (const int number : {1, 2}) ::dup2(its_end, number);
    become_levin_run(words);
  }
  ::close(its_end);
  std::string text;
  std::array<char, 512> part;
  for (ssize_t count = 0; (count = ::read(screen, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(count));
  }
  ::close(screen);
  ::waitpid(pid, nullptr, 0);
  return text;
}

TEST(Output, ARankAloneDrawsOnTheTerminalAsEver) {
  const Scratch scratch;
  const auto program =
      script(scratch, "rank.sh", "[ -t 2 ] && printf 'a terminal\\r10%%\\r20%%' >&2; exit 3");
  const std::string text = shown_on_a_terminal(scratch, {"-n", "1", program});
  EXPECT_THAT(text, HasSubstr("a terminal\r10%\r20%"));
  EXPECT_THAT(text, HasSubstr("| 20%"));  // in the summary
}

}  // namespace
