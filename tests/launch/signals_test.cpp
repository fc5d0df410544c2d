// Signals to the launcher: ranks save and end, or are ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/launcher.h"
#include "tests/support/places.h"

namespace {

using namespace levin::test;  // NOLINT

// Saves for a moment when it is asked to end.
std::string saving_rank(const Scratch& scratch) {
  return script(scratch, "rank.sh",
                "trap 'touch $RANK.heard; sleep 0.3; touch $RANK.saved; exit 143' TERM INT; touch "
                "$RANK.up; "
                "while :; do sleep 0.05; done");
}

std::string deaf_rank(const Scratch& scratch) {
  return script(scratch, "rank.sh",
                "trap 'touch $RANK.heard' TERM INT; touch $RANK.up; "
                "while :; do sleep 0.05; done");
}

bool both_have(const Scratch& scratch, const std::string& what) {
  return soon([&] {
    return std::filesystem::exists(scratch / ("0." + what)) &&
           std::filesystem::exists(scratch / ("1." + what));
  });
}

class Forwarded : public ::testing::TestWithParam<int> {};

TEST_P(Forwarded, RanksSaveBeforeTheLauncherEnds) {
  const Scratch scratch;
  Launcher launcher(scratch, {"-n", "2", "--max-restarts", "3", saving_rank(scratch)});
  ASSERT_TRUE(both_have(scratch, "up"));
  launcher.signal(GetParam());
  EXPECT_EQ(launcher.wait(), 128 + GetParam()) << launcher.err();
  EXPECT_TRUE(std::filesystem::exists(scratch / "0.saved"));
  EXPECT_TRUE(std::filesystem::exists(scratch / "1.saved"));
}

INSTANTIATE_TEST_SUITE_P(Launcher, Forwarded, ::testing::Values(SIGTERM, SIGINT, SIGHUP));

TEST(LauncherSignals, TheSecondOneKillsAtOnce) {
  const Scratch scratch;
  Launcher launcher(scratch, {"-n", "2", "--shutdown-timeout", "600", deaf_rank(scratch)});
  ASSERT_TRUE(both_have(scratch, "up"));
  launcher.signal(SIGINT);
  ASSERT_TRUE(both_have(scratch, "heard"));
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait(), 130);
}

TEST(LauncherSignals, RanksThatDoNotEndAreKilledAfterTheTimeout) {
  const Scratch scratch;
  Launcher launcher(scratch, {"-n", "2", "--shutdown-timeout", "0.5", deaf_rank(scratch)});
  ASSERT_TRUE(both_have(scratch, "up"));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 143);
}

TEST(LauncherSignals, Usr1ReachesTheRanksOutsideSlurm) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh",
                              "trap 'exit 0' USR1; touch $RANK.up; while :; do sleep 0.05; done");
  Launcher launcher(scratch, {"-n", "2", program});
  ASSERT_TRUE(both_have(scratch, "up"));
  launcher.signal(SIGUSR1);
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
}

TEST(LauncherSignals, Usr1UnderSlurmSavesAndAsksForARequeue) {
  for (const bool its_term_comes : {false, true}) {
    const Scratch scratch;
    script(scratch, "scontrol", "ls *.saved | wc -l >asked; echo \"$@\" >>asked");
    Launcher launcher(scratch, {"-n", "2", saving_rank(scratch)},
                      {{"SLURM_JOB_ID", "42"}, {"PATH", scratch.str() + ":/usr/bin:/bin"}});
    ASSERT_TRUE(both_have(scratch, "up"));
    launcher.signal(SIGUSR1);
    ASSERT_TRUE(both_have(scratch, "heard"));
    if (its_term_comes) launcher.signal(SIGTERM);
    EXPECT_EQ(launcher.wait(), 128 + SIGUSR1) << launcher.err();
    EXPECT_EQ(get(scratch / "asked"), "2\nrequeue 42\n");
  }
}

TEST(LauncherSignals, ComeFromItsInputToo) {
  const Scratch scratch;
  const auto program = saving_rank(scratch);
  const auto through = script(scratch, "through.sh",
                              "both() { while [ ! -e 0.$1 ] || [ ! -e 1.$1 ]; do sleep 0.05; "
                              "done; }; { both up; echo 2; both saved; } | " +
                                  levin::test::levin_command() + " run -n 2 --signals-from-input " +
                                  program + "; echo $? >code");
  Launcher outer(scratch, {"-n", "1", through});
  EXPECT_EQ(outer.wait(), 0);
  EXPECT_EQ(get(scratch / "code"), "130\n");
  EXPECT_TRUE(std::filesystem::exists(scratch / "1.saved"));
}

}  // namespace
