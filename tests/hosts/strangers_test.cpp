// A job of two hosts, and somebody on a third who reaches every port of the first.
#include "tests/support/strangers.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <deque>
#include <set>
#include <sstream>

#include "levin/comm/environment/token.h"
#include "tests/hosts/examples.h"
#include "tests/hosts/network.h"
#include "tests/trainer/small_run.h"

namespace {

namespace fs = std::filesystem;
using namespace levin::test;  // NOLINT
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPort = "29500";

/// Ports of that process's host on which somebody listens whom other hosts reach.
std::set<int64_t> ports_beside(pid_t pid) {
  std::set<int64_t> ports;
  for (const char* table : {"net/tcp", "net/tcp6"}) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/" + table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      const bool is_loopback = local.starts_with("0100007F:");
      if (state != "0A" || is_loopback) continue;  // 0A: it listens
      ports.insert(std::stoll(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

Descriptor connect_to_host(int host, int64_t port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, Network::address(host).c_str(), &address.sin_addr);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(socket.number(), generic, sizeof address) != 0) return {};
  ::fcntl(socket.number(), F_SETFL, O_NONBLOCK);
  return socket;
}

/// Nothing, wrong ones, half a word of c10d's store and one that would be longer than any memory.
std::vector<std::string> wrong_words() {
  const std::string hello("\0\xce\xf7\x85\x3c", 5);  // c10d's question whether this is a store
  const std::string half("\1\5\0\0\0\0\0\0\0ke", 11), long_one("\1\0\0\0\0\0\0\0\x10key", 12);
  return {"",
          std::string(1, '\1'),
          std::string(48, 'x'),
          "GET / HTTP/1.0\r\n\r\n",
          std::string(100'000, '\xff'),
          hello + half,
          hello + long_one};
}

/// What somebody would write who has listed the store's keys.
void put_words_in_the_store() {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(std::stoi(kPort));
  options.waitWorkers = false;
  options.timeout = patient(std::chrono::seconds(5));
  c10d::TCPStore store(Network::address(0), options);
  const auto put_word = [&](const std::string& key, const std::string& word) {
    store.set(key, std::vector<uint8_t>(word.begin(), word.end()));
  };
  for (const std::string& start :
       {std::string("levin/job/"), "levin/job/" + levin::comm::key_word("a secret") + "/"}) {
    put_word(start + "stop/0", R"({"gently":false,"why":"a stranger likes it so"})");
    put_word(start + "alarm/0", R"({"signal":15})");
    put_word(start + "end", R"({"exit_code":7,"why":"a stranger likes it so"})");
    put_word(start + "plan/0", "no plan");
    put_word(start + "report/0/1", R"({"signal":9})");
  }
}

/// Until the folder has a file "stop"; leaves how many connections there were to each port.
void attack(const fs::path& folder, pid_t beside) {
  std::map<int64_t, int64_t> times;
  std::deque<Descriptor> open;
  bool has_written = false;
  for (size_t round = 0; !fs::exists(folder / "stop"); ++round) {
    const std::string words = wrong_words()[round % wrong_words().size()];
    for (const int64_t port : ports_beside(beside)) {
      Descriptor socket = connect_to_host(0, port);
      if (!socket) continue;
      ++times[port];
      if (!words.empty()) say(socket, words);
      open.push_back(std::move(socket));
      if (open.size() > 100) open.pop_front();
    }
    if (!has_written && fs::exists(folder / "trains.0.0")) {
      put_words_in_the_store();
      has_written = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::ofstream counts(folder / "counts");
  for (const auto& [port, count] : times) counts << port << " " << count << "\n";
}

struct Job {
  const Scratch& scratch;
  const Network& network;
  fs::path folder;
  bool hurries;  ///< nobody is to find it before it ends
  std::unique_ptr<Program> zero = start(0), one = start(1);

  std::unique_ptr<Program> start(int host) const {
    fs::create_directories(folder);
    const Words words = {levin_command(),
                         "run",
                         "-n",
                         "2",
                         "--nnodes",
                         "2",
                         "--node-rank",
                         std::to_string(host),
                         "--rdzv-endpoint",
                         Network::address(0) + ":" + kPort,
                         "--rdzv-id",
                         "job",
                         "--rdzv-conf",
                         "join_timeout=1000," + patient_node_timeout(),
                         fs::read_symlink("/proc/self/exe").string(),
                         "--gtest_also_run_disabled_tests",
                         "--gtest_filter=HostsRank.DISABLED_Rank"};
    Settings settings = {{"LEVIN_HOSTS_FOLDER", folder.string()},
                         {"LEVIN_HOSTS_EPOCHS", "16"},
                         {"LEVIN_JOB_TOKEN", "a secret"}};
    if (hurries) settings["LEVIN_HOSTS_HURRIES"] = "1";
    return std::make_unique<Program>(scratch, words, settings,
                                     [this, host] { return network.enter(host); });
  }
};

TEST(StrangersOfAThirdHost, LeaveAJobOfTwoItsWeights) {
  if (const std::string obstacle = Network::obstacle(); !obstacle.empty()) GTEST_SKIP() << obstacle;
  const Scratch scratch;
  const Network network(scratch, 3);
  ASSERT_TRUE(network.made());
  fs::path weights[2];
  std::string said;
  for (const bool is_attacked : {false, true}) {
    const fs::path folder = scratch / (is_attacked ? "attacked" : "undisturbed");
    weights[is_attacked ? 1 : 0] = folder / "final.safetensors";
    const Job job{scratch, network, folder, !is_attacked};
    pid_t attacker = -1;
    if (is_attacked) {
      ASSERT_TRUE(soon([&] { return !job.zero->alive().empty(); }));
      const pid_t beside = job.zero->alive().front();
      attacker = start_child([&] {
        if (!network.enter(2)) return kSkipped;
        attack(folder, beside);
        return 0;
      });
    }
    EXPECT_EQ(job.zero->wait(), 0) << job.zero->err() << job.one->err();
    EXPECT_EQ(job.one->wait(), 0) << job.one->err();
    put(folder / "stop", "");
    if (is_attacked) EXPECT_EQ(wait_for(attacker), 0);
    said = job.zero->err() + job.one->err();
    if (!is_attacked)
      EXPECT_THAT(said, Not(AnyOf(HasSubstr("a foreign process"), HasSubstr("an unsigned value"),
                                  HasSubstr("refused a connection"))))
          << "where there is none";
  }
  EXPECT_EQ(small_run::off_by(weights[0], weights[1], 0), "");
  EXPECT_THAT(said, HasSubstr("ignored an unsigned value in the store of the job"));
  EXPECT_THAT(
      said, HasSubstr("a foreign process is connected to the store of the job: host " +
                      Network::address(2) + ", which runs no launcher of the job, port " + kPort));
  // The launcher's store, where the ranks meet too, and gloo's listeners of the two ranks there.
  std::istringstream counts(get(scratch / "attacked/counts"));
  int64_t num_ports = 0, port = 0, count = 0;
  for (; counts >> port >> count; ++num_ports) EXPECT_GT(count, 1) << port;
  EXPECT_GE(num_ports, 3) << get(scratch / "attacked/counts");
}

}  // namespace
