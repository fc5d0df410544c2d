// A job whose every socket other processes connect to, from its start to its end: strangers of this
// user and of another one, who say wrong words, too many, half of them or nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "tests/launch/launcher.h"
#include "tests/support/pretended_host.h"
#include "tests/support/strangers.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using levin::test::as_another_user;
using levin::test::connect_abstract;
using levin::test::connect_loopback;
using levin::test::Descriptor;
using levin::test::Launcher;
using levin::test::say;
using levin::test::sockets_of;
using ::testing::HasSubstr;

constexpr const char* kAttackedFolder = "LEVIN_ATTACKED_FOLDER";
constexpr const char* kAttackedBackend = "LEVIN_ATTACKED_BACKEND";

/// One rank of the program; the others wait a while for the last one. Over hierarchical the first
/// is on another host than they.
TEST(Attacked, DISABLED_Rank) {
  const fs::path folder = std::getenv(kAttackedFolder);
  const auto rank = levin::rank_from_environment();
  if (std::getenv(kAttackedBackend) == std::string("hierarchical") &&
      !levin::test::pretend_host(folder / ("host_of." + std::to_string(rank.rank)),
                                 rank.rank == 0 ? "a" : "b")) {
    std::_Exit(levin::test::kSkipped);
  }
  if (rank.rank == rank.world_size - 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  auto options = quiet((folder / std::to_string(rank.rank)).string());
  options.enable_checkpointing = false;
  options.seed = 3;
  options.max_epochs = 3;
  options.engine.comm.backend = std::getenv(kAttackedBackend);
  options.engine.comm.timeout_s = levin::test::patient_s(20);
  levin::Trainer trainer(options);
  // Another group, whose sockets are open for as long as the last one is late.
  if (rank.rank == rank.world_size - 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto again = trainer.accelerator().world().subgroup({0, 1, 2});
  const auto net = std::make_shared<Net>();
  trainer.fit(net, levin::DataLoader(dataset(100), {.batch_size = 4, .shuffle = true}));
  if (rank.rank == 0) levin::save_weights(folder / "final.safetensors", levin::module_state(*net));
}

/// That process and all that it has started.
std::set<pid_t> family_of(pid_t first) {
  std::map<pid_t, pid_t> parents;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string stat((std::istreambuf_iterator<char>(file)), {});
    const size_t end = stat.rfind(')');
    if (end != std::string::npos) parents[std::stoi(name)] = std::stoi(stat.substr(end + 4));
  }
  std::set<pid_t> family = {first};
  for (size_t size = 0; size != family.size();) {
    size = family.size();
    for (const auto& [child, parent] : parents) {
      if (family.contains(parent)) family.insert(child);
    }
  }
  return family;
}

/// Ports on which one of them listens.
std::set<int64_t> ports_of(const std::set<pid_t>& family) {
  std::set<std::string> inodes;
  std::error_code ignored;
  for (const pid_t pid : family) {
    for (const auto& entry :
         fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored)) {
      const std::string target = fs::read_symlink(entry.path(), ignored).string();
      if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
    }
  }
  std::set<int64_t> ports;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      if (state != "0A" || !inodes.contains(inode)) continue;  // 0A: it listens
      ports.insert(std::stoll(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

const std::vector<std::string>& wrong_words() {
  static const std::vector<std::string> words = {"",
                                                 std::string(1, '\x01'),
                                                 std::string(48, 'x'),
                                                 "GET / HTTP/1.0\r\n\r\n",
                                                 std::string(20, '\xff'),
                                                 std::string(100'000, '\xff')};
  return words;
}

/// Goes on until it is told to stop.
class Attack {
 public:
  explicit Attack(pid_t job) : job_(job), thread_([this] { run(); }) {}
  ~Attack() { stop(); }
  void stop() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int64_t num_unix() const { return num_unix_; }
  int64_t num_tcp() const { return num_tcp_; }
  int64_t num_of_others() const { return num_of_others_; }
  int64_t num_of_others_over_tcp() const { return num_of_others_over_tcp_; }

 private:
  void run() {
    for (size_t round = 0; !over_; ++round) {
      const std::string& words = wrong_words()[round % wrong_words().size()];
      const auto family = family_of(job_);
      for (const pid_t pid : family) {
        for (const std::string& name : sockets_of(pid)) {
          if (keep(connect_abstract(name), words)) ++num_unix_;
          if (round % 2 != 0) continue;
          const auto knock = [&] { return say(connect_abstract(name), words) ? 0 : 1; };
          if (as_another_user(knock) == 0) ++num_of_others_;
        }
      }
      for (const int64_t port : ports_of(family)) {
        if (keep(connect_loopback(port), words)) ++num_tcp_;
        if (round % 16 != 15) continue;  // a process each: they cost the others their rounds
        const auto knock = [&] { return say(connect_loopback(port), words) ? 0 : 1; };
        if (as_another_user(knock) == 0) ++num_of_others_over_tcp_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  bool keep(Descriptor socket, const std::string& words) {
    if (!socket) return false;
    // What is not read must not hold up the attack.
    ::fcntl(socket.number(), F_SETFL, O_NONBLOCK);
    if (!words.empty()) say(socket, words);
    open_.push_back(std::move(socket));
    if (open_.size() > 100) open_.pop_front();
    return true;
  }

  pid_t job_;
  std::atomic<bool> over_ = false;
  std::atomic<int64_t> num_unix_ = 0, num_tcp_ = 0, num_of_others_ = 0;
  std::atomic<int64_t> num_of_others_over_tcp_ = 0;
  std::deque<Descriptor> open_;
  std::thread thread_;
};

struct AttackedJob {
  Scratch scratch;
  Launcher launcher;

  explicit AttackedJob(const std::string& backend)
      : launcher(scratch,
                 {"-n", "3", fs::read_symlink("/proc/self/exe").string(),
                  "--gtest_also_run_disabled_tests", "--gtest_filter=Attacked.DISABLED_Rank"},
                 {{kAttackedFolder, scratch.str()},
                  {kAttackedBackend, backend},
                  {"LEVIN_LOG_ALL_RANKS", "1"}}) {}
};

class AttackedOver : public ::testing::TestWithParam<const char*> {};

TEST_P(AttackedOver, AJobEndsWithTheWeightsOfOneThatNobodyDisturbed) {
  AttackedJob undisturbed(GetParam());
  const int code = undisturbed.launcher.wait();
  if (code == levin::test::kSkipped) GTEST_SKIP() << "nobody here may mount two hosts";
  ASSERT_EQ(code, 0) << undisturbed.launcher.err();
  AttackedJob job(GetParam());
  Attack attack(job.launcher.pid());
  EXPECT_EQ(job.launcher.wait(), 0) << job.launcher.err();
  attack.stop();
  EXPECT_EQ(off_by(job.scratch / "final.safetensors", undisturbed.scratch / "final.safetensors", 0),
            "");
  EXPECT_GT(attack.num_tcp(), 10);
  if (::geteuid() == 0) EXPECT_GT(attack.num_of_others_over_tcp(), 0);
  // Over hierarchical that socket is there for an instant: its ranks have met in the store before.
  if (GetParam() != std::string("shm")) return;
  EXPECT_GT(attack.num_unix(), 5);
  EXPECT_THAT(job.launcher.err(),
              HasSubstr("refused a connection to the socket of this machine's ranks (process " +
                        std::to_string(::getpid()) + "): "));
  if (::geteuid() != 0) return;
  EXPECT_GT(attack.num_of_others(), 0);
  EXPECT_THAT(job.launcher.err(), HasSubstr("it belongs to the user 65534"));
}

INSTANTIATE_TEST_SUITE_P(Backends, AttackedOver, ::testing::Values("shm", "gloo", "hierarchical"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
