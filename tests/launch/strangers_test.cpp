// Other processes at the ports of a job: what they write and send changes nothing.
#include "tests/support/strangers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <sstream>

#include "levin/comm/environment/environment.h"
#include "levin/comm/environment/token.h"
#include "levin/comm/store.h"
#include "levin/launch/launch.h"
#include "levin/launch/rendezvous/witness.h"
#include "tests/launch/launcher.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"

namespace {

using namespace levin::test;  // NOLINT
using ::testing::HasSubstr;
using ::testing::Not;

bool left_behind(const Scratch& scratch, const std::string& name) {
  return std::filesystem::exists(scratch / name);
}

/// A rank that goes on until it is told, by a file, to end well.
std::string patient_rank(const Scratch& scratch) {
  return script(
      scratch, "rank.sh",
      "echo $MASTER_PORT >port.$RANK; echo $LEVIN_JOB_TOKEN >token.$RANK; touch $RANK.up; "
      "while [ ! -e go ]; do sleep 0.05; done; touch $RANK.done");
}

c10d::TCPStore stranger_at(const std::string& port) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(std::stoi(port));
  options.waitWorkers = false;
  options.timeout = patient(std::chrono::seconds(5));
  return c10d::TCPStore("127.0.0.1", options);
}

void put_word(c10d::Store& store, const std::string& key, const std::string& word) {
  store.set(key, std::vector<uint8_t>(word.begin(), word.end()));
}

TEST(Strangers, AJobOfOneNodeIsReachedFromThisHostAlone) {
  const Scratch scratch;
  const auto program = patient_rank(scratch);
  for (const Words& more : {Words{}, Words{"--master-addr", "localhost"}}) {
    std::filesystem::remove(scratch / "go");
    std::filesystem::remove(scratch / "0.up");
    Words words = {"-n", "2"};
    words.insert(words.end(), more.begin(), more.end());
    words.push_back(program);
    Launcher launcher(scratch, words);
    ASSERT_TRUE(soon([&] { return left_behind(scratch, "0.up"); })) << launcher.err();
    const int64_t port = pids_in(scratch / "port.0").at(0);
    EXPECT_TRUE(connect_loopback(port));
    EXPECT_FALSE(connect_loopback(port, 2));  // as every other address of this host
    put(scratch / "go", "");
    EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  }
}

/// A rank that writes a word for the other one and waits for its own.
TEST(Strangers, DISABLED_Rank) {
  const auto environment = levin::comm::read_environment();
  const auto store = levin::comm::connect_store(environment, std::chrono::seconds(20));
  const int64_t rank = environment.rank.rank;
  put_word(*store, "word of " + std::to_string(rank), "a secret");
  store->wait({"word of " + std::to_string(1 - rank)});
  put("told." + std::to_string(rank), fmt::format("{}\n{}\n{}\n", environment.token,
                                                  environment.store_file, environment.master_port));
  put(std::to_string(rank) + ".up", "");
  while (!std::filesystem::exists("go")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// c10d's store lists its keys to everybody who connects. Ranks of one machine write none there.
TEST(Strangers, ReadAndChangeNoWordOfRanksOnOneMachine) {
  const Scratch scratch;
  Launcher launcher(scratch,
                    {"-n", "2", std::filesystem::read_symlink("/proc/self/exe").string(),
                     "--gtest_also_run_disabled_tests", "--gtest_filter=Strangers.DISABLED_Rank"});
  ASSERT_TRUE(soon([&] { return left_behind(scratch, "0.up") && left_behind(scratch, "1.up"); }))
      << launcher.err();
  std::istringstream told(get(scratch / "told.0"));
  std::string token, file, port;
  told >> token >> file >> port;
  EXPECT_THAT(file, ::testing::StartsWith("/proc/"));
  for (const std::string& key : stranger_at(port).listKeys()) {
    EXPECT_EQ(key.find(token), key.npos) << key;
    EXPECT_EQ(key.find("word"), key.npos) << key;
  }
  EXPECT_TRUE(levin::posix::open_file(file, O_RDWR));
  const int other = as_another_user([&]() -> int {
    for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR}) {
      if (levin::posix::open_file(file, flags)) return 1;
    }
    return 0;
  });
  EXPECT_TRUE(other == 0 || other == kSkipped) << other;
  put(scratch / "go", "");
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
}

// With several nodes the keys are in reach, and tell nothing of the token that seals words.
TEST(Strangers, KeysDoNotTellTheToken) {
  const std::string token = levin::comm::new_token();
  const std::string word = levin::comm::key_word(token);
  EXPECT_EQ(word.size(), 32U);
  EXPECT_NE(word, token);
  EXPECT_EQ(word, levin::comm::key_word(token));
  EXPECT_NE(word, levin::comm::key_word(levin::comm::new_token()));
  EXPECT_EQ(levin::comm::key_word(""), "");
  const Scratch scratch;
  const std::string port = free_port();
  const Words words = {"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:" + port,
                       patient_rank(scratch)};
  const Settings settings = {{"LEVIN_JOB_TOKEN", token}};
  Launcher first(scratch, words, settings), second(scratch, words, settings);
  ASSERT_TRUE(soon([&] { return left_behind(scratch, "0.up") && left_behind(scratch, "1.up"); }))
      << first.err();
  const auto keys = stranger_at(port).listKeys();
  EXPECT_FALSE(keys.empty());
  for (const std::string& key : keys) EXPECT_EQ(key.find(token), key.npos) << key;
  put(scratch / "go", "");
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
}

TEST(Strangers, EveryJobHasATokenOfItsOwn) {
  const Scratch scratch;
  put(scratch / "go", "");
  const auto program = patient_rank(scratch);
  std::string last;
  for (int i = 0; i < 2; ++i) {
    Launcher launcher(scratch, {"-n", "2", program});
    EXPECT_EQ(launcher.wait(), 0);
    const std::string token = get(scratch / "token.0");
    EXPECT_EQ(token.size(), 33U);
    EXPECT_EQ(get(scratch / "token.1"), token);
    EXPECT_NE(token, last);
    last = token;
  }
  Launcher launcher(scratch, {"-n", "1", program}, {{"LEVIN_JOB_TOKEN", "given"}});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(get(scratch / "token.0"), "given\n");
}

/// Two launchers of a job whose ranks wait.
struct TwoNodes {
  Scratch scratch;
  std::string port = free_port();
  std::string program = patient_rank(scratch);
  double node_timeout_s = patient_s(2);
  Settings settings;
  std::optional<Launcher> first, second;

  explicit TwoNodes(Settings given) : settings(std::move(given)) {
    const std::string node_timeout = "node_timeout=" + std::to_string(node_timeout_s);
    const Words words = {"--nnodes",          "2",          "--rdzv-endpoint",
                         "127.0.0.1:" + port, "--rdzv-id",  "job",
                         "--rdzv-conf",       node_timeout, program};
    first.emplace(scratch, words, settings);
    second.emplace(scratch, words, settings);
    EXPECT_TRUE(soon([&] { return left_behind(scratch, "0.up") && left_behind(scratch, "1.up"); }))
        << first->err() << second->err();
  }
};

const char* const kStop = R"({"gently":false,"why":"a stranger likes it so"})";
const char* const kEnd = R"({"exit_code":7,"why":"a stranger likes it so"})";
const char* const kAlarm = R"({"signal":15})";

TEST(Strangers, WordsInTheStoreEndNoJobWithAToken) {
  TwoNodes job(Settings{{"LEVIN_JOB_TOKEN", "a secret"}});
  {
    auto store = stranger_at(job.port);
    const std::string plain = "levin/job/",
                      known = "levin/job/" + levin::comm::key_word("a secret") + "/";
    for (const std::string& start : {plain, known}) {  // as if it had seen the keys
      put_word(store, start + "stop/0", kStop);
      put_word(store, start + "alarm/0", kAlarm);
      put_word(store, start + "end", kEnd);
      put_word(store, start + "left/0", "15");
      put_word(store, start + "report/0/1", R"({"signal":9})");
      put_word(store, start + "plan/0", "no plan");
      put_word(store, start + "info/1", std::string(3 << 20, 'x'));
    }
    // Longer than a node may say nothing.
    std::this_thread::sleep_for(std::chrono::duration<double>(1.5 * job.node_timeout_s));
  }
  put(job.scratch / "go", "");
  EXPECT_EQ(job.first->wait(), 0) << job.first->err();
  EXPECT_EQ(job.second->wait(), 0) << job.second->err();
  EXPECT_TRUE(left_behind(job.scratch, "0.done") && left_behind(job.scratch, "1.done"));
  const std::string said = job.first->err() + job.second->err();
  EXPECT_THAT(said, HasSubstr("ignored an unsigned value in the store of the job"));
  EXPECT_THAT(said, Not(HasSubstr("share no secret")));
}

TEST(Strangers, AJobWithoutATokenSaysSo) {
  TwoNodes job(Settings{});
  {
    auto store = stranger_at(job.port);
    put_word(store, "levin/job/end", kEnd);  // before the launchers write theirs
    put_word(store, "levin/job/stop/0", kStop);
  }
  EXPECT_EQ(job.first->wait(), 7);
  EXPECT_THAT(job.first->err(), HasSubstr("the launchers of this job share no secret"));
}

TEST(Strangers, ConnectionsAndNumbersOfNobodyKeepNoNodeOut) {
  const Scratch scratch;
  const std::string port = free_port();
  const auto program = patient_rank(scratch);
  put(scratch / "go", "");
  const Settings settings = {{"LEVIN_JOB_TOKEN", "a secret"}};
  const Words words = {"--nnodes",
                       "2",
                       "--rdzv-endpoint",
                       "127.0.0.1:" + port,
                       "--rdzv-conf",
                       patient_node_timeout(),
                       program};
  Launcher first(scratch, words, settings);
  ASSERT_TRUE(soon([&] { return bool(connect_loopback(std::stoi(port))); })) << first.err();
  std::vector<Descriptor> strangers;
  for (const std::string& greeting :
       {std::string(), std::string("\x00", 1), std::string("GET / HTTP/1.0\r\n\r\n"),
        std::string(100000, '\xff')}) {
    strangers.push_back(connect_loopback(std::stoi(port)));
    say(strangers.back(), greeting);
  }
  stranger_at(port).add("levin/none/" + levin::comm::key_word("a secret") + "/agents", 3);
  Launcher second(scratch, words, settings);
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_TRUE(left_behind(scratch, "0.done") && left_behind(scratch, "1.done"));
}

// As /proc/net/tcp and tcp6 have them: 7777 is 1E61, and a server of both kinds of addresses has
// those of IPv4 in the other table.
TEST(Strangers, AreKnownByTheKernelsAccountOfConnections) {
  const std::string head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n";
  const std::string mapped = "0000000000000000FFFF0000";
  const auto row = [](const std::string& local, const std::string& remote, const char* state,
                      int user) {
    return "   1: " + local + " " + remote + " " + state +
           " 00000000:00000000 00:00000000 00000000 " + std::to_string(user) +
           "        0 52418 1 0000000000000000 20 4 30 10 -1\n";
  };
  const std::string here = "0100007F:1E61", caller = "0100007F:C001", gone = "0100007F:C002";
  const std::string text =
      head + row(caller, here, "01", 65534) + row(gone, here, "06", 0) +
      row("0100007F:C003", "0200007F:1E61", "01", 33) +  // to another machine's port
      head + row(mapped + here, mapped + caller, "01", 1000) +
      row(mapped + "00000000:1E61", mapped + "00000000:0000", "0A", 1000);
  EXPECT_EQ(levin::launch::users_at(7777, text), std::set<uid_t>{65534});
  EXPECT_EQ(levin::launch::users_at(7778, text), std::set<uid_t>{});
  for (size_t end = 0; end < text.size(); ++end) {
    EXPECT_LE(levin::launch::users_at(7777, text.substr(0, end)).size(), 1U);
  }
}

// 10.0.0.3 and 2001:db8::7 are others' addresses, 10.0.0.2 is this machine's.
TEST(Strangers, OfOtherHostsAreKnownByTheirAddresses) {
  const std::string mapped = "0000000000000000FFFF0000";
  const auto row = [](const std::string& local, const std::string& remote, const char* state) {
    return "   1: " + local + " " + remote + " " + state +
           " 00000000:00000000 00:00000000 00000000 1000        0 52418 1\n";
  };
  const std::string text =
      row("0200000A:1E61", "0300000A:C001", "01") +                    // from 10.0.0.3
      row(mapped + "0200000A:1E61", mapped + "0400000A:C001", "06") +  // 10.0.0.4 is gone
      row("0200000A:C005", "0500000A:1E61", "01") +                    // to another host's port
      row("0200000A:1E61", "0200000A:C006", "01") +                    // from this machine
      row("B80D0120000000000000000001000000:1E61", "B80D0120000000000000000007000000:C007", "01");
  EXPECT_EQ(levin::launch::hosts_at(7777, text),
            (std::set<std::string>{"10.0.0.3", "2001:db8::7"}));
  EXPECT_EQ(levin::launch::hosts_at(7778, text), std::set<std::string>{});
  for (size_t end = 0; end < text.size(); ++end) {
    EXPECT_LE(levin::launch::hosts_at(7777, text.substr(0, end)).size(), 2U);
  }
}

TEST(Strangers, OfAnotherUserAtTheStoreAreNamed) {
  const Scratch scratch;
  Launcher launcher(scratch, {"-n", "2", patient_rank(scratch)});
  ASSERT_TRUE(soon([&] { return left_behind(scratch, "0.up"); })) << launcher.err();
  const int64_t port = pids_in(scratch / "port.0").at(0);
  const std::string line =
      "a foreign process is connected to the store of the job: user 65534 of this machine, port " +
      std::to_string(port);
  if (::geteuid() != 0) {
    put(scratch / "go", "");
    GTEST_SKIP() << "only root can be another user";
  }
  const pid_t stranger = start_child([&] {
    if (::setuid(kNobody) != 0) return kThrew;
    const Descriptor silent = connect_loopback(port);
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  });
  EXPECT_TRUE(soon([&] { return launcher.err().find(line) != std::string::npos; }))
      << launcher.err();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  ::kill(stranger, SIGKILL);
  wait_for(stranger);
  put(scratch / "go", "");
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_EQ(launcher.err().find(line), launcher.err().rfind(line));  // once
}

TEST(Strangers, AHostIsNoOptionOfSsh) {
  for (const char* name : {"-oProxyCommand=touch x", "-"}) {
    EXPECT_EQ(error_id([&] {
                levin::launch::launch({.nnodes = {2, 2}, .master_addr = name, .command = {"x"}});
              }),
              "launch.options");
    EXPECT_EQ(error_id([&] { levin::launch::parse_endpoint(name, 1); }), "launch.options");
  }
}

TEST(Strangers, ALauncherWithoutALoopbackSaysSo) {
  const Scratch scratch;
  const auto log = scratch / "log";
  const int code = run_child([&]() -> int {
    if (::unshare(CLONE_NEWNET) != 0) return kSkipped;
    ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    ::execl(levin::test::levin_command().c_str(), levin::test::levin_command().c_str(), "run", "-n",
            "2", "/bin/true", nullptr);
    return kThrew;
  });
  if (code == kSkipped) GTEST_SKIP() << "no network of its own can be made here";
  EXPECT_EQ(code, 2);
  EXPECT_THAT(get(log), HasSubstr("launch.loopback: this process cannot reach its own port"));
}

}  // namespace
