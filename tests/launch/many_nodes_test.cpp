// Several nodes as several launchers on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/launch/launch.h"
#include "tests/launch/launcher.h"
#include "tests/support/error_of.h"
#include "tests/support/strangers.h"

namespace {

using namespace levin::test;  // NOLINT
using ::testing::HasSubstr;

/// The same options for every node of a job.
struct Job {
  std::string endpoint = "127.0.0.1:" + free_port();
  std::string nnodes = "2";
  Words more = {};

  Words node(const Words& own) const {
    Words words = {"--nnodes", nnodes, "--rdzv-endpoint", endpoint, "--rdzv-id", "job"};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), own.begin(), own.end());
    return words;
  }
};

/// Until the first launcher of the job serves its rendezvous: the next one comes after it.
void wait_for_server(const Job& job) {
  const int64_t port = std::stoll(job.endpoint.substr(job.endpoint.rfind(':') + 1));
  EXPECT_TRUE(soon([&] { return bool(connect_loopback(port)); }));
}

bool has(const Scratch& scratch, const std::string& name) {
  return std::filesystem::exists(scratch / name);
}

TEST(ManyNodes, AgreeOnRanksHoweverLateOneComes) {
  const Scratch scratch;
  const Job job;
  const auto program = script(
      scratch, "rank.sh",
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT "
      ">$RANK.txt");
  Launcher first(scratch, job.node({"-n", "2", program}));
  wait_for_server(job);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  Launcher second(scratch, job.node({"-n", "1", program}));
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_EQ(get(scratch / "0.txt"), "0/3 0/2 0 " + job.endpoint + "\n");
  EXPECT_EQ(get(scratch / "1.txt"), "1/3 1/2 0 " + job.endpoint + "\n");
  EXPECT_EQ(get(scratch / "2.txt"), "2/3 0/1 1 " + job.endpoint + "\n");
}

TEST(ManyNodes, NodeRanksOrderThem) {
  const Scratch scratch;
  const std::string port = free_port();
  const auto program = script(scratch, "rank.sh", "echo $1 >$RANK.txt");
  const auto node = [&](const std::string& rank) -> Words {
    return {"--nnodes",      "3",  "--node-rank", rank,         "--master-addr", "localhost",
            "--master-port", port, program,       "node" + rank};
  };
  Launcher two(scratch, node("2"));
  Launcher one(scratch, node("1"));
  Launcher zero(scratch, node("0"));
  for (Launcher* launcher : {&zero, &one, &two}) EXPECT_EQ(launcher->wait(), 0) << launcher->err();
  EXPECT_EQ(get(scratch / "0.txt") + get(scratch / "1.txt") + get(scratch / "2.txt"),
            "node0\nnode1\nnode2\n");
}

TEST(ManyNodes, OneFailureRestartsAllAndEndsAllWithItsCode) {
  const Scratch scratch;
  Job job;
  job.more = {"--max-restarts", "1"};
  const auto program = script(scratch, "rank.sh",
                              "echo $RANK >>ran.$TORCHELASTIC_RESTART_COUNT; "
                              "[ $RANK = 1 ] || sleep 60; "
                              "while [ $(wc -l <ran.$TORCHELASTIC_RESTART_COUNT) != 2 ]; do sleep "
                              "0.05; done; echo cause >&2; exit 3");
  Launcher first(scratch, job.node({program}));
  Launcher second(scratch, job.node({program}));
  EXPECT_EQ(first.wait(), 3) << first.err();
  EXPECT_EQ(second.wait(), 3) << second.err();
  EXPECT_EQ(pids_in(scratch / "ran.1").size(), 2U);
  EXPECT_THAT(first.err() + second.err(), HasSubstr("restart 1 of 1"));
  EXPECT_THAT(first.err() + second.err(), HasSubstr("ended with exit code 3; the last lines of its "
                                                    "stderr:\n  | cause"));
}

TEST(ManyNodes, OneFailureIsHealedByARestart) {
  const Scratch scratch;
  Job job;
  job.more = {"--max-restarts", "1"};
  const auto program = script(scratch, "rank.sh",
                              "[ $TORCHELASTIC_RESTART_COUNT$RANK = 01 ] && kill -9 $$; [ "
                              "$TORCHELASTIC_RESTART_COUNT = 1 ] "
                              "|| sleep 100000");
  Launcher first(scratch, job.node({program}));
  Launcher second(scratch, job.node({program}));
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
}

TEST(ManyNodes, AFailureIsHeardByANodeThatHearsOfItsStartOnlyThen) {
  const Scratch scratch;
  const std::string port = free_port();
  const auto program = script(scratch, "rank.sh", "[ $RANK = 0 ] && exit 3; sleep 100000");
  const auto node = [&](const std::string& rank, const std::string& interval) -> Words {
    return {"--nnodes",      "2",  "--node-rank",        rank,     "--master-addr", "localhost",
            "--master-port", port, "--monitor-interval", interval, program};
  };
  Launcher fast(scratch, node("0", "0.01"));
  Launcher slow(scratch, node("1", "2"));
  EXPECT_EQ(slow.wait(), 3) << slow.err();
  EXPECT_EQ(fast.wait(), 3) << fast.err();
}

TEST(ManyNodes, ALostNodeEndsAJobOfFixedSize) {
  const Scratch scratch;
  Job job;
  job.more = {"--rdzv-conf", patient_node_timeout()};
  const auto program = script(scratch, "rank.sh", "touch $RANK.up; sleep 100000");
  Launcher first(scratch, job.node({program}));
  wait_for_server(job);
  Launcher second(scratch, job.node({program}));
  ASSERT_TRUE(soon([&] { return has(scratch, "0.up") && has(scratch, "1.up"); }));
  second.signal(SIGKILL);
  EXPECT_EQ(first.wait(), 1);
  EXPECT_THAT(first.err(), HasSubstr("was lost: its launcher is gone or cannot reach this one"));
}

TEST(ManyNodes, ALostNodeOfAPodEndsItWithTheCodeThatStartsItAgain) {
  const Scratch scratch;
  Job job;
  job.more = {"--rdzv-conf", patient_node_timeout()};
  const Settings pod = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
  const auto program = script(scratch, "rank.sh", "touch $RANK.up; sleep 100000");
  Launcher first(scratch, job.node({program}), pod);
  wait_for_server(job);
  Launcher second(scratch, job.node({program}), pod);
  ASSERT_TRUE(soon([&] { return has(scratch, "0.up") && has(scratch, "1.up"); }));
  second.signal(SIGKILL);
  EXPECT_EQ(first.wait(), 138) << first.err();
}

TEST(ManyNodes, AnElasticJobGoesOnWithFewerNodes) {
  const Scratch scratch;
  Job job;
  job.nnodes = "1:2";
  job.more = {"--rdzv-conf", patient_node_timeout()};
  const auto program =
      script(scratch, "rank.sh", "touch $RANK.of.$WORLD_SIZE; [ $WORLD_SIZE = 1 ] || sleep 100000");
  Launcher first(scratch, job.node({program}));
  wait_for_server(job);
  Launcher second(scratch, job.node({program}));
  ASSERT_TRUE(soon([&] { return has(scratch, "0.of.2") && has(scratch, "1.of.2"); }));
  second.signal(SIGKILL);
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_TRUE(has(scratch, "0.of.1"));
}

TEST(ManyNodes, AnElasticJobGrowsWhenANodeJoins) {
  const Scratch scratch;
  Job job;
  job.nnodes = "1:2";
  job.more = {"--rdzv-conf", "last_call_timeout=0.2"};
  const auto program =
      script(scratch, "rank.sh",
             "trap 'touch $RANK.saved; exit 143' TERM; touch $RANK.of.$WORLD_SIZE; "
             "[ $WORLD_SIZE = 2 ] && exit 0; while :; do sleep 0.05; done");
  Launcher first(scratch, job.node({program}));
  ASSERT_TRUE(soon([&] { return has(scratch, "0.of.1"); })) << first.err();
  Launcher second(scratch, job.node({program}));
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_TRUE(has(scratch, "0.saved"));
  EXPECT_TRUE(has(scratch, "1.of.2"));
}

TEST(ManyNodes, ASignalToOneLauncherLetsAllSave) {
  for (const bool to_first : {true, false}) {
    const Scratch scratch;
    const Job job;
    const auto program = script(scratch, "rank.sh",
                                "trap 'sleep 0.2; touch $RANK.saved; exit 143' TERM; touch "
                                "$RANK.up; while :; do sleep 0.05; done");
    Launcher first(scratch, job.node({program}));
    wait_for_server(job);
    Launcher second(scratch, job.node({program}));
    ASSERT_TRUE(soon([&] { return has(scratch, "0.up") && has(scratch, "1.up"); }));
    (to_first ? first : second).signal(SIGTERM);
    EXPECT_EQ(first.wait(), 143) << first.err();
    EXPECT_EQ(second.wait(), 143) << second.err();
    EXPECT_TRUE(has(scratch, "0.saved") && has(scratch, "1.saved"));
  }
}

// As where a scheduler ends all of a job: a launcher hears of it from another one before its own signal comes.
TEST(ManyNodes, ASignalThatALauncherHasHeardOfLeavesItsRanksTheTimeToSave) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    const Scratch scratch;
    const Job job;
    const auto program = script(scratch, "rank.sh",
                                "trap 'echo >>$RANK.told; sleep 0.7; touch $RANK.saved; exit 143' "
                                "TERM INT; touch $RANK.up; while :; do sleep 0.05; done");
    const Settings slurm = {{"SLURM_JOB_ID", "1"}};  // there SIGUSR1 ends ranks
    Launcher first(scratch, job.node({program}), slurm);
    wait_for_server(job);
    Launcher second(scratch, job.node({program}), slurm);
    ASSERT_TRUE(soon([&] { return has(scratch, "0.up") && has(scratch, "1.up"); }));
    second.signal(signal);
    ASSERT_TRUE(soon([&] { return has(scratch, "0.told") && has(scratch, "1.told"); }));
    first.signal(signal);
    if (signal == SIGUSR1) second.signal(SIGTERM);  // it is what SIGUSR1 announced
    EXPECT_EQ(first.wait(), 128 + signal) << first.err();
    EXPECT_EQ(second.wait(), 128 + signal) << second.err();
    for (const char* rank : {"0", "1"}) {
      EXPECT_TRUE(has(scratch, rank + std::string(".saved"))) << first.err() << second.err();
      EXPECT_EQ(get(scratch / (rank + std::string(".told"))), "\n") << "told twice";
    }
  }
}

TEST(ManyNodes, ASignalEndsALauncherThatWaitsForOthers) {
  const Scratch scratch;
  const Job job;
  Launcher alone(scratch, job.node({"/bin/true"}));
  Launcher far(scratch, {"--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1",
                         "--master-port", free_port(), "/bin/true"});
  ASSERT_TRUE(soon([&] { return alone.catches(SIGTERM) && far.catches(SIGINT); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until they wait
  alone.signal(SIGTERM);
  far.signal(SIGINT);
  EXPECT_EQ(alone.wait(), 143);
  EXPECT_EQ(far.wait(), 130);
}

TEST(ManyNodes, SayWhoDidNotCome) {
  const Scratch scratch;
  Job job;
  job.more = {"--rdzv-conf", "join_timeout=0.5"};
  Launcher alone(scratch, job.node({"/bin/true"}));
  EXPECT_EQ(alone.wait(), 1);
  EXPECT_THAT(alone.err(), HasSubstr("1 of at least 2 nodes joined within 0.5 s"));
}

TEST(ManyNodes, SayThatNobodyServes) {
  const Scratch scratch;
  const std::string port = free_port();
  Launcher alone(scratch, {"--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1",
                           "--master-port", port, "--rdzv-conf", "join_timeout=0.5", "/bin/true"});
  EXPECT_EQ(alone.wait(), 2);
  EXPECT_THAT(alone.err(),
              HasSubstr("launch.rendezvous: no launcher serves the rendezvous at 127.0.0.1:" +
                        port + " after 0.5 s"));
}

TEST(ManyNodes, SayThatSomethingElseListens) {
  const Scratch scratch;
  const auto taken = levin::comm::listen_on(0, "");
  Launcher alone(scratch,
                 {"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:" + std::to_string(taken.port()),
                  "--rdzv-conf", "join_timeout=0.5", "/bin/true"});
  EXPECT_EQ(alone.wait(), 2);
  EXPECT_THAT(alone.err(),
              HasSubstr("did not answer as a store within 0.5 s; check --rdzv-endpoint"));
}

/// Nodes with ranks of their own, as pods have.
Words numbered(const std::string& port, const std::string& rank, const std::string& program) {
  return {"--nnodes",      "2",  "--node-rank",    rank, "--master-addr", "127.0.0.1",
          "--master-port", port, "--max-restarts", "1",  program};
}

TEST(ManyNodes, ANodeThatWasStartedAgainTakesItsPlace) {
  const Scratch scratch;
  const std::string port = free_port();
  const auto program = script(scratch, "rank.sh",
                              "touch $RANK.of.$TORCHELASTIC_RESTART_COUNT; "
                              "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 100000");
  Launcher zero(scratch, numbered(port, "0", program));
  Launcher one(scratch, numbered(port, "1", program));
  ASSERT_TRUE(soon([&] { return has(scratch, "0.of.0") && has(scratch, "1.of.0"); }));
  one.signal(SIGKILL);
  EXPECT_EQ(one.wait(), -SIGKILL);
  Launcher again(scratch, numbered(port, "1", program));
  EXPECT_EQ(zero.wait(), 0) << zero.err();
  EXPECT_EQ(again.wait(), 0) << again.err();
  EXPECT_TRUE(has(scratch, "1.of.1"));
}

TEST(ManyNodes, RefuseTwoOfTheSameNodeRank) {
  const Scratch scratch;
  const std::string port = free_port();
  const auto of_three = [&](const std::string& rank) -> Words {
    return {"--nnodes",      "3",  "--node-rank", rank, "--master-addr", "127.0.0.1",
            "--master-port", port, "/bin/true"};
  };
  Launcher one(scratch, of_three("1"));
  Launcher twin(scratch, of_three("1"));
  Launcher zero(scratch, of_three("0"));
  EXPECT_EQ(zero.wait(), 1);
  EXPECT_EQ(one.wait(), 1);
  EXPECT_EQ(twin.wait(), 1);
  EXPECT_THAT(zero.err(), HasSubstr("two running launchers have the same --node-rank"));
}

TEST(ManyNodes, APortThatIsTakenIsAClearError) {
  const Scratch scratch;
  const auto taken = levin::comm::listen_on(0, "");
  Launcher alone(scratch, {"--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1",
                           "--master-port", std::to_string(taken.port()), "/bin/true"});
  EXPECT_EQ(alone.wait(), 2);
  EXPECT_THAT(alone.err(), HasSubstr("comm.environment.port: port "));
}

TEST(ManyNodes, AFollowerEndsWhenTheServingLauncherIsKilled) {
  const Scratch scratch;
  const Job job;
  const auto program = script(scratch, "rank.sh", "touch $RANK.up; sleep 100000");
  Launcher first(scratch, job.node({program}));
  wait_for_server(job);
  Launcher second(scratch, job.node({program}));
  ASSERT_TRUE(soon([&] { return has(scratch, "0.up") && has(scratch, "1.up"); }));
  first.signal(SIGKILL);
  EXPECT_EQ(second.wait(), 1);
  EXPECT_THAT(second.err(), HasSubstr("lost the launcher that serves the rendezvous at"));
}

// As a suspended machine, or all machines of a job that a scheduler has stopped.
TEST(ManyNodes, AJobThatWasStoppedAsAWholeGoesOn) {
  const Scratch scratch;
  Job job;
  job.more = {"--rdzv-conf", patient_node_timeout()};
  const auto program =
      script(scratch, "rank.sh", "touch $RANK.up; while [ ! -e go ]; do sleep 0.05; done");
  Launcher first(scratch, job.node({program}));
  wait_for_server(job);
  Launcher second(scratch, job.node({program}));
  ASSERT_TRUE(soon([&] { return has(scratch, "0.up") && has(scratch, "1.up"); }));
  for (Launcher* leads : {&first, &second}) {
    Launcher* follows = leads == &first ? &second : &first;
    for (Launcher* launcher : {&first, &second}) launcher->signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    leads->signal(SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    follows->signal(SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  }
  put(scratch / "go", "");
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
}

// Its host still takes what is sent, and nobody answers, as where a network is cut.
TEST(ManyNodes, AFollowerEndsWhenTheServingLauncherIsSilent) {
  const Scratch scratch;
  Job job;
  job.more = {"--rdzv-conf", patient_node_timeout()};
  const auto program = script(scratch, "rank.sh", "touch $RANK.up; sleep 100000");
  Launcher first(scratch, job.node({program}));
  wait_for_server(job);
  Launcher second(scratch, job.node({program}));
  ASSERT_TRUE(soon([&] { return has(scratch, "0.up") && has(scratch, "1.up"); }));
  first.signal(SIGSTOP);
  EXPECT_EQ(second.wait(), 1);
  EXPECT_THAT(second.err(), HasSubstr("(it did not answer for "));
}

}  // namespace
