// Ranks that are killed, stopped or asked to end at random moments, under `levin run`: every run
// goes on from its last checkpoint and ends with the weights of one that nobody disturbed.
//
// LEVIN_KILLS=50 does so 50 times and says how long the way from the kill to the next finished step
// took.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "levin/checkpoint/checkpoint.h"
#include "levin/module/parameters.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/launch/launcher.h"
#include "tests/trainer/adapter_run.h"
#include "tests/trainer/exported_run.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using levin::test::get;
using levin::test::Launcher;
using levin::test::put;
using levin::test::soon;

constexpr int64_t kEpochs = 6;
constexpr const char* kFolder = "LEVIN_KILLS_FOLDER";
constexpr const char* kStrategy = "LEVIN_KILLS_STRATEGY";
/// "adapter": one is trained, on a base in its file; "exported": a program of torch.export; else Net.
constexpr const char* kNetwork = "LEVIN_KILLS_NETWORK";
constexpr const char* kOffload = "LEVIN_KILLS_OFFLOAD";

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Leaves its process id when training begins, and the time of the first step it has finished.
struct Traces : levin::Callback {
  fs::path folder;
  bool stepped = false;

  std::string state_key() const override { return "traces"; }
  static std::string attempt() { return std::getenv("TORCHELASTIC_RESTART_COUNT"); }
  void on_train_start(levin::Trainer& trainer, levin::Module&) override {
    const auto rank = std::to_string(trainer.accelerator().rank().rank);
    put(folder / ("pid." + attempt() + "." + rank + ".new"), std::to_string(::getpid()));
    fs::rename(folder / ("pid." + attempt() + "." + rank + ".new"),
               folder / ("pid." + attempt() + "." + rank));
  }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (trainer.accelerator().rank().rank != 0 || std::exchange(stepped, true)) return;
    put(folder / ("step." + attempt()), fmt::format("{:.6f}", seconds_now()));
  }
};

/// One rank of the program that is killed; `levin run` starts it.
TEST(Kills, DISABLED_Rank) {
  const fs::path folder = std::getenv(kFolder);
  auto options = quiet(folder.string());
  options.exit_on_signal = true;
  options.seed = 3;
  options.max_epochs = kEpochs;
  options.ckpt_path = "last";
  options.strategy = std::getenv(kStrategy);
  options.engine.comm.timeout_s = std::min(levin::test::patient_s(2), 20.0);
  if (const std::string state = std::getenv(kOffload); state != "no") {
    options.engine.offload = {
        .state = state, .folder = (folder / "offload").string(), .tmpfs = true, .memory_mb = 1};
  }
  auto traces = std::make_shared<Traces>();
  traces->folder = folder;
  options.callbacks = {traces, levin::model_checkpoint({.dirpath = (folder / "ckpt").string(),
                                                        .save_top_k = 2,
                                                        .every_n_train_steps = 5})};
  levin::Trainer trainer(options);
  std::shared_ptr<levin::Module> net;
  const std::string network = std::getenv(kNetwork);
  if (network == "adapter") {
    net = adapter_run::module(adapter_run::adapted(folder / "base"));
    trainer.fit(net, adapter_run::loader(2));
  } else if (network == "exported") {
    net = std::make_shared<exported_run::Net>(folder / "net.pt2");
    trainer.fit(net, levin::DataLoader(dataset(100), {.batch_size = 4, .shuffle = true}));
  } else {
    net = std::make_shared<Net>();
    trainer.fit(net, levin::DataLoader(dataset(100), {.batch_size = 4, .shuffle = true}));
  }
  const levin::State weights = levin::full(*net);
  if (trainer.accelerator().is_main_process()) {
    levin::save_weights(folder / "final.safetensors", weights);
  }
}

struct Killed {
  std::string strategy;
  std::string network = {};
  std::string offload = "no";
};
std::ostream& operator<<(std::ostream& out, const Killed& what) {
  return out << what.strategy << (what.network.empty() ? "" : "_" + what.network)
             << (what.offload == "no" ? "" : "_offload_" + what.offload);
}

struct Program {
  Scratch scratch;
  Launcher launcher;

  explicit Program(const Killed& what) : launcher(scratch, words(), variables(what)) {}

  static std::vector<std::string> words() {
    return {"-n",
            "2",
            "--max-restarts",
            "3",
            fs::read_symlink("/proc/self/exe").string(),
            "--gtest_also_run_disabled_tests",
            "--gtest_filter=Kills.DISABLED_Rank"};
  }
  std::map<std::string, std::string> variables(const Killed& what) const {
    if (what.network == "adapter") adapter_run::write_base(scratch / "base");
    if (what.network == "exported") exported_run::write(scratch / "net.pt2");
    return {{kFolder, scratch.str()},
            {kStrategy, what.strategy},
            {kNetwork, what.network},
            {kOffload, what.offload}};
  }

  fs::path pid_of(int64_t rank) const { return scratch / ("pid.0." + std::to_string(rank)); }
};

levin::State final_weights(const Program& program) {
  levin::State copy;  // off the file, which goes
  const auto weights = levin::load_weights(program.scratch / "final.safetensors");
  for (const auto& [name, value] : weights.values()) copy.set(name, weights.tensor(name).clone());
  return copy;
}

void expect_equal(const levin::State& got, const levin::State& wanted) {
  for (const auto& [name, value] : wanted.values()) {
    EXPECT_TRUE(at::equal(got.tensor(name), wanted.tensor(name))) << name;
  }
}

class KillsUnder : public ::testing::TestWithParam<Killed> {};
INSTANTIATE_TEST_SUITE_P(Strategies, KillsUnder,
                         ::testing::Values(Killed{"ddp"}, Killed{"fsdp"}, Killed{"ddp", "adapter"},
                                           Killed{"fsdp", "adapter"}, Killed{"zero", "adapter"},
                                           Killed{"ddp", "exported"}, Killed{"fsdp", "exported"},
                                           Killed{"ddp", "", "optimizer"},
                                           Killed{"zero", "", "optimizer"},
                                           Killed{"fsdp", "", "parameters"}),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

/// The file of offloaded state goes with its process, also with one that is killed.
void expect_no_scratch_file(const Program& program, bool is_offloaded) {
  const fs::path folder = program.scratch / "offload";
  EXPECT_EQ(fs::exists(folder), is_offloaded);
  if (!fs::exists(folder)) return;
  EXPECT_TRUE(fs::is_empty(folder)) << fs::directory_iterator(folder)->path();
}

TEST_P(KillsUnder, EveryRunRecoversAndEndsWithTheSameWeights) {
  const char* asked = std::getenv("LEVIN_KILLS");
  const int64_t runs = asked == nullptr ? 3 : std::stoll(asked);
  Killed in_memory = GetParam();
  in_memory.offload = "no";
  Program undisturbed(in_memory);
  ASSERT_EQ(undisturbed.launcher.wait(), 0) << undisturbed.launcher.err();
  const levin::State wanted = final_weights(undisturbed);
  std::mt19937 random(static_cast<unsigned>(::getpid()));
  std::vector<double> seconds;
  for (int64_t number = 0; number < runs; ++number) {
    Program program(GetParam());
    ASSERT_TRUE(soon([&] {
      return fs::exists(program.pid_of(0)) && fs::exists(program.pid_of(1));
    })) << program.launcher.err();
    const int64_t rank = static_cast<int64_t>(random() % 2);
    const int signal = std::array{SIGKILL, SIGSTOP, SIGTERM}[static_cast<size_t>(number % 3)];
    const auto moment = std::chrono::milliseconds(random() % 400);
    std::this_thread::sleep_for(moment);
    const double killed = seconds_now();
    ::kill(std::stoi(get(program.pid_of(rank))), signal);
    SCOPED_TRACE(fmt::format("run {}: signal {} to rank {} after {} ms", number, signal, rank,
                             moment.count()));
    ASSERT_EQ(program.launcher.wait(), 0) << program.launcher.err();
    ASSERT_TRUE(fs::exists(program.scratch / "step.1")) << program.launcher.err();
    expect_equal(final_weights(program), wanted);
    expect_no_scratch_file(program, GetParam().offload != "no");
    if (signal == SIGKILL) seconds.push_back(std::stod(get(program.scratch / "step.1")) - killed);
  }
  std::ranges::sort(seconds);
  std::printf("from kill -9 to the next finished step: median %.3f s, worst %.3f s, %zu kills\n",
              seconds[seconds.size() / 2], seconds.back(), seconds.size());
}

}  // namespace
