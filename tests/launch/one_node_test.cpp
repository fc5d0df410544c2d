// A group on one node: normal ends, failures, restarts, and nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/launcher.h"

namespace {

using namespace levin::test;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST(OneNode, GivesItsRanksTorchrunsVariables) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh",
                              "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK "
                              "$MASTER_ADDR $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_RUN_ID "
                              "$TORCHELASTIC_USE_AGENT_STORE >$RANK.txt");
  Launcher launcher(scratch, {"-n", "2", "--rdzv-id", "job", program});
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_EQ(get(scratch / "0.txt"), "0 2 0 2 0 127.0.0.1 0 job True\n");
  EXPECT_EQ(get(scratch / "1.txt"), "1 2 1 2 0 127.0.0.1 0 job True\n");
}

TEST(OneNode, LeavesAllAfterTheProgramToIt) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh", "for word; do echo \"<$word>\"; done");
  Launcher launcher(scratch, {"-n", "1", program, "-n", "3", "--n", "--nnodes=2", "--", "a b", ""});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(launcher.out(), "<-n>\n<3>\n<--n>\n<--nnodes=2>\n<-->\n<a b>\n<>\n");
}

TEST(OneNode, TakesADoubleDashBeforeTheProgram) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh", "printf '%s ' \"$@\"");
  Launcher launcher(scratch, {"-n", "1", "--", program, "-n", "--"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(launcher.out(), "-n -- ");
}

TEST(OneNode, EndsWithTheCodeOfTheRankThatFailed) {
  const Scratch scratch;
  const auto program =
      script(scratch, "rank.sh",
             "[ $RANK = 1 ] && { echo cause >&2; exit 3; }; sleep 100000; touch $RANK.slept");
  Launcher launcher(scratch, {"-n", "3", program});
  EXPECT_EQ(launcher.wait(), 3);
  for (const char* rank : {"0.slept", "2.slept"}) {
    EXPECT_FALSE(std::filesystem::exists(scratch / rank));
  }
  EXPECT_THAT(launcher.err(),
              AllOf(HasSubstr("levin error: rank 1 on "), HasSubstr("ended with exit code 3; the "
                                                                    "last lines of its stderr:\n"
                                                                    "  | cause\n")));
}

// The other rank does not heed SIGTERM: it is killed after --failure-timeout, and not after the time
// that ranks have to save.
TEST(OneNode, ReportsAKilledRankAndEndsTheOther) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh",
                              "for i in 1 2 3; do echo line $i >&2; done; echo $$ >$RANK.pid.new; "
                              "mv $RANK.pid.new $RANK.pid"
                              "; trap '' TERM; while :; do sleep 1; done");
  Launcher launcher(scratch, {"-n", "2", "--shutdown-timeout", "100000", program});
  ASSERT_TRUE(soon([&] {
    return std::filesystem::exists(scratch / "0.pid") && std::filesystem::exists(scratch / "1.pid");
  }));
  const pid_t victim = pids_in(scratch / "1.pid").at(0);
  ::kill(victim, SIGKILL);
  EXPECT_EQ(launcher.wait(), 137);
  EXPECT_THAT(launcher.err(),
              HasSubstr("(pid " + std::to_string(victim) + ") ended with signal 9 (SIGKILL"));
  EXPECT_THAT(launcher.err(), HasSubstr("  | line 1\n  | line 2\n  | line 3\n"));
  EXPECT_FALSE(any_alive(pids_in(scratch / "0.pid")));
}

TEST(OneNode, StartsAgainAfterAFailure) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh",
                              "echo $RANK >>ran.$TORCHELASTIC_RESTART_COUNT; "
                              "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 7; exit 0");
  Launcher launcher(scratch, {"-n", "2", "--max-restarts", "3", program});
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(pids_in(scratch / "ran.1"), SizeIs(2));
  EXPECT_FALSE(std::filesystem::exists(scratch / "ran.2"));
  EXPECT_THAT(launcher.err(), HasSubstr("restarting all ranks, restart 1 of 3"));
}

TEST(OneNode, GivesUpAfterTheLastRestart) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh", "echo $$ >>ran; exit 5");
  Launcher launcher(scratch, {"-n", "1", "--max-restarts", "2", program});
  EXPECT_EQ(launcher.wait(), 5);
  EXPECT_THAT(pids_in(scratch / "ran"), SizeIs(3));
}

TEST(OneNode, KeepsTheSameStoreOverRestarts) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh", "echo $MASTER_PORT >>ports; exit 5");
  const std::string port = free_port();
  Launcher launcher(scratch, {"-n", "1", "--max-restarts", "1", "--master-port", port, program});
  EXPECT_EQ(launcher.wait(), 5) << launcher.err();
  EXPECT_EQ(get(scratch / "ports"), port + "\n" + port + "\n");
}

TEST(OneNode, APortThatIsTakenIsAClearError) {
  const Scratch scratch;
  const auto taken = levin::comm::listen_on(0, "");
  Launcher launcher(scratch,
                    {"-n", "1", "--master-port", std::to_string(taken.port()), "/bin/true"});
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_THAT(launcher.err(),
              HasSubstr("comm.environment.port: port " + std::to_string(taken.port()) +
                        " of this host is taken by another process; choose a free one by "
                        "--master-port"));
}

TEST(OneNode, AProgramThatDoesNotExistIsNotTriedAgain) {
  const Scratch scratch;
  Launcher launcher(scratch, {"-n", "2", "--max-restarts", "5", "./none"});
  EXPECT_EQ(launcher.wait(), 127);
  EXPECT_THAT(launcher.err(),
              AllOf(HasSubstr("launch.program: cannot run './none': no such file or directory"),
                    Not(HasSubstr("again"))));
}

// The rank's own child would outlive it without the guard.
const char* const kWithChild =
    "sleep 300 & echo $! >>pids; echo $$ >>pids; touch $RANK.up; trap '' TERM INT; "
    "while :; do wait; done";

TEST(OneNode, NothingOutlivesAKilledLauncher) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh", kWithChild);
  Launcher launcher(scratch, {"-n", "2", program});
  ASSERT_TRUE(soon([&] { return pids_in(scratch / "pids").size() == 4; }));
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait(), -SIGKILL);
  const auto pids = pids_in(scratch / "pids");
  EXPECT_TRUE(soon([&] { return !any_alive(pids); }));
}

TEST(OneNode, NothingOutlivesALauncherThatIsKilledWhileItStartsItsRanks) {
  const Scratch scratch;
  // Its first deed is the launcher's end, which may still be reading that the program runs.
  const auto program =
      script(scratch, "rank.sh", "sleep 300 & echo $! >>pids; kill -9 $PPID; sleep 300");
  for (int round = 0; round < 10; ++round) {
    Launcher launcher(scratch, {"-n", "1", program});
    EXPECT_EQ(launcher.wait(), -SIGKILL);
  }
  const auto pids = pids_in(scratch / "pids");
  EXPECT_THAT(pids, SizeIs(10));
  EXPECT_TRUE(soon([&] { return !any_alive(pids); }));
}

TEST(OneNode, NothingOutlivesAGroupThatFailed) {
  const Scratch scratch;
  const auto program =
      script(scratch, "rank.sh", "sleep 300 & echo $! >>pids; echo $$ >>pids; exit $RANK");
  Launcher launcher(scratch, {"-n", "2", program});
  EXPECT_EQ(launcher.wait(), 1);
  const auto pids = pids_in(scratch / "pids");
  EXPECT_TRUE(soon([&] { return !any_alive(pids); }));
}

}  // namespace
