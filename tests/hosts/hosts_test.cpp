// Training over hosts that have nothing but a network in common: namespaces of this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/hosts/examples.h"
#include "tests/hosts/network.h"
#include "tests/trainer/small_run.h"

namespace {

namespace fs = std::filesystem;
using namespace levin::test;  // NOLINT
using ::testing::HasSubstr;

constexpr const char* kFolder = "LEVIN_HOSTS_FOLDER";
constexpr const char* kStrategy = "LEVIN_HOSTS_STRATEGY";
constexpr const char* kZeroStage = "LEVIN_HOSTS_ZERO_STAGE";
constexpr const char* kMesh = "LEVIN_HOSTS_MESH";
constexpr const char* kReshards = "LEVIN_HOSTS_RESHARD_AFTER_FORWARD";
constexpr const char* kEpochs = "LEVIN_HOSTS_EPOCHS";
constexpr const char* kCommTimeout = "LEVIN_HOSTS_COMM_TIMEOUT";
constexpr const char* kHurries = "LEVIN_HOSTS_HURRIES";  // nobody disturbs it

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const size_t start = text.rfind('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1, end - start);
}

/// Leaves what step each start began with, and when training is under way.
struct Traces : levin::Callback {
  fs::path folder;

  std::string state_key() const override { return "traces"; }
  static std::string start() {
    return std::string(std::getenv("TORCHELASTIC_RESTART_COUNT")) + "." + std::getenv("RANK");
  }
  void on_train_start(levin::Trainer& trainer, levin::Module&) override {
    put(folder / ("began." + start()), std::to_string(trainer.global_step()));
  }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (std::getenv(kHurries) == nullptr) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (trainer.global_step() % 30 == 0) put(folder / ("trains." + start()), "");
  }
};

/// Adam would make steps of the rounding errors in a gradient that is zero, as before batch norm.
struct BySgd : small_run::Net {
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.05}); }
};

/// One rank of the program whose hosts are cut off.
TEST(HostsRank, DISABLED_Rank) {
  const fs::path folder = std::getenv(kFolder);
  auto options = small_run::quiet(folder.string());
  options.exit_on_signal = true;
  options.seed = 3;
  const char *epochs = std::getenv(kEpochs), *timeout = std::getenv(kCommTimeout);
  options.max_epochs = epochs == nullptr ? 8 : std::stoi(epochs);
  if (const char* strategy = std::getenv(kStrategy)) options.strategy = strategy;
  if (const char* stage = std::getenv(kZeroStage))
    options.engine.fsdp.zero_stage = std::stoi(stage);
  if (const char* mesh = std::getenv(kMesh)) options.engine.fsdp.mesh = mesh;
  if (timeout != nullptr) options.engine.comm.timeout_s = std::stod(timeout);
  options.ckpt_path = "last";
  auto traces = std::make_shared<Traces>();
  traces->folder = folder;
  options.callbacks = {traces, levin::model_checkpoint({.dirpath = (folder / "ckpt").string(),
                                                        .save_top_k = 2,
                                                        .every_n_train_steps = 5})};
  levin::Trainer trainer(options);
  const auto net = std::getenv(kStrategy) == nullptr ? std::make_shared<small_run::Net>()
                                                     : std::make_shared<BySgd>();
  trainer.fit(net, levin::DataLoader(small_run::dataset(200), {.batch_size = 4, .shuffle = true}));
  const levin::State weights = levin::full(*net);
  if (trainer.accelerator().is_main_process()) {
    levin::save_weights(folder / "final.safetensors", weights);
    put(folder / "finished", std::to_string(trainer.global_step()));
  }
}

constexpr int64_t kWideSteps = 10;
constexpr int64_t kWideBytes = int64_t{2} * 512 * 2048 * 4;

/// One rank of a program with parameters of kWideBytes.
TEST(HostsRank, DISABLED_WideRank) {
  const char* mesh = std::getenv(kMesh);
  levin::AcceleratorOptions options{.strategy = "fsdp"};
  options.engine.fsdp.mesh = mesh == nullptr ? "" : mesh;
  levin::Accelerator accelerator(options);
  torch::manual_seed(1);
  const torch::nn::Sequential net(
      torch::nn::Linear(torch::nn::LinearOptions(512, 2048).bias(false)),
      torch::nn::Linear(torch::nn::LinearOptions(2048, 512).bias(false)));
  auto [model, optimizer] = accelerator.prepare(net, levin::optim::sgd({.lr = 0.01}));
  for (int64_t step = 0; step < kWideSteps; ++step) {
    optimizer.zero_grad();
    accelerator.backward(model->forward(torch::randn({4, 512})).square().mean());
    optimizer.step();
  }
}

constexpr int64_t kDeepSteps = 10;
constexpr int64_t kDeepLayerBytes = int64_t{256} * 256 * 4;

/// One rank of a program with eight units of kDeepLayerBytes, which each rank gathers for itself.
TEST(HostsRank, DISABLED_DeepRank) {
  levin::AcceleratorOptions options{.strategy = "fsdp"};
  options.engine.comm.backend = "gloo";
  levin::from_text(std::getenv(kReshards), options.engine.fsdp.reshard_after_forward);
  levin::Accelerator accelerator(options);
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < 8; ++i) {
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(256, 256).bias(false)));
  }
  levin::wrap_all(*net);
  auto [model, optimizer] = accelerator.prepare(net, levin::optim::sgd({.lr = 0.01}));
  for (int64_t step = 0; step < kDeepSteps; ++step) {
    optimizer.zero_grad();
    accelerator.backward(model->forward(torch::randn({4, 256})).square().mean());
    optimizer.step();
  }
}

class Hosts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { obstacle_ = Network::obstacle(); }
  void SetUp() override {
    if (!obstacle_.empty()) GTEST_SKIP() << obstacle_;
    network_.emplace(scratch_, 2);
    ASSERT_TRUE(network_->made());
  }

  std::unique_ptr<Program> start(int host, const Words& options, const Words& command,
                                 int processes = 1) {
    Words words = {levin_command(),
                   "run",
                   "-n",
                   std::to_string(processes),
                   "--node-rank",
                   std::to_string(host),
                   "--master-addr",
                   master_,
                   "--rdzv-conf",
                   "join_timeout=1000," + patient_node_timeout()};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), command.begin(), command.end());
    Settings settings = settings_;
    settings.try_emplace(kFolder, scratch_.str());
    return std::make_unique<Program>(scratch_, words, settings,
                                     [this, host] { return network_->enter(host); });
  }
  Words rank(const std::string& name = "Rank") const {
    return {fs::read_symlink("/proc/self/exe").string(), "--gtest_also_run_disabled_tests",
            "--gtest_filter=HostsRank.DISABLED_" + name};
  }
  bool trains(const std::string& start) const { return fs::exists(scratch_ / ("trains." + start)); }

  /// The last line of 07_ddp on two hosts.
  void run_example(std::string& line, int processes = 1) {
    const Example example = ddp();
    const auto zero = start(0, {"--nnodes", "2"}, example.words, processes);
    const auto one = start(1, {"--nnodes", "2"}, example.words, processes);
    const int code = zero->wait();
    if (lacks_data(*zero)) GTEST_SKIP() << "Fashion-MNIST is not here";
    ASSERT_EQ(code, 0) << zero->err() << one->err();
    EXPECT_EQ(one->wait(), 0) << one->err();
    EXPECT_TRUE(example.kept_its_promise(*zero)) << zero->out() << zero->err();
    line = last_line(zero->out());
  }

  Scratch scratch_;
  std::optional<Network> network_;
  std::string master_ = Network::address(0);
  Settings settings_;

 private:
  static inline std::string obstacle_;
};

// Over gloo, and with two processes each over shared memory and gloo.
TEST_F(Hosts, TwoTrainAsOneDoes) {
  for (const int processes : {1, 2}) {
    std::string line;
    run_example(line, processes);
    if (IsSkipped() || HasFatalFailure()) return;
    Words words = {levin_command(), "run", "-n", std::to_string(2 * processes)};
    for (const std::string& word : ddp().words) words.push_back(word);
    Program alone(scratch_, words);
    ASSERT_EQ(alone.wait(), 0) << alone.err();
    EXPECT_EQ(last_line(alone.out()), line) << processes << " on each host";
  }
}

// Gathered by each rank, and with two processes each into memory that they share.
TEST_F(Hosts, TwoTrainADividedModelAsDdpDoes) {
  struct Way {
    std::string strategy, zero_stage, mesh = {}, where = {};
  };
  const Way ways[] = {
      {"ddp", ""},   {"fsdp", ""},  {"fsdp", "", "hosts", "memory shared by the ranks"},
      {"zero", "1"}, {"zero", "2"}, {"zero", "3"}};
  for (const int processes : {1, 2}) {
    fs::path by_ddp;
    for (const Way& way : ways) {
      const std::string what = way.strategy + way.zero_stage + way.mesh + std::to_string(processes);
      const fs::path folder = scratch_ / what;
      fs::create_directories(folder);
      settings_ = {
          {kFolder, folder.string()}, {kEpochs, "3"}, {kHurries, "1"}, {kStrategy, way.strategy}};
      if (!way.zero_stage.empty()) settings_[kZeroStage] = way.zero_stage;
      if (!way.mesh.empty()) settings_[kMesh] = way.mesh;
      const auto zero = start(0, {"--nnodes", "2"}, rank(), processes);
      const auto one = start(1, {"--nnodes", "2"}, rank(), processes);
      ASSERT_EQ(zero->wait(), 0) << what << zero->err() << one->err();
      ASSERT_EQ(one->wait(), 0) << what << one->err();
      if (way.strategy == "ddp") {
        by_ddp = folder / "final.safetensors";
        continue;
      }
      EXPECT_THAT(zero->err(),
                  HasSubstr(!way.where.empty() ? way.where
                            : processes == 1   ? "all-gathered at first use"
                                               : "memory shared by the ranks of a host"));
      EXPECT_EQ(small_run::off_by(by_ddp, folder / "final.safetensors", 1e-5), "") << what;
    }
  }
}

// Each host has one copy of the parameters, so that its ranks together send what one rank would send.
TEST_F(Hosts, BytesOverTheNetworkDoNotGrowWithTheRanksOfAHost) {
  for (const std::string mesh : {"hosts", ""}) {
    if (!mesh.empty()) settings_[kMesh] = mesh;
    if (mesh.empty()) settings_.erase(kMesh);
    int64_t of_one = 0;
    for (const int processes : {1, 2, 4}) {
      const int64_t before = network_->sent_bytes(0) + network_->sent_bytes(1);
      const auto zero = start(0, {"--nnodes", "2"}, rank("WideRank"), processes);
      const auto one = start(1, {"--nnodes", "2"}, rank("WideRank"), processes);
      ASSERT_EQ(zero->wait(), 0) << zero->err() << one->err();
      ASSERT_EQ(one->wait(), 0) << one->err();
      const int64_t sent = (network_->sent_bytes(0) + network_->sent_bytes(1) - before) / 2;
      std::cout << "mesh '" << mesh << "', " << processes << " ranks a host: "
                << static_cast<double>(sent) / static_cast<double>(kWideSteps * kWideBytes)
                << " of the parameters' bytes a host and step\n";
      if (processes == 1) of_one = sent;
      EXPECT_GT(sent, kWideSteps * kWideBytes / 2) << mesh << " " << processes;
      EXPECT_LT(static_cast<double>(sent), 1.2 * static_cast<double>(of_one))
          << mesh << " " << processes;
    }
  }
}

// Sharded over the two ranks of a host after forward, units go through the network in forward alone, as
// those do that stay gathered.
TEST_F(Hosts, BackwardGathersNothingThroughTheNetworkFromTheRanksOfAHost) {
  std::map<std::string, int64_t> sent;
  for (const std::string reshards : {"true", "false", "2"}) {
    settings_[kReshards] = reshards;
    const int64_t before = network_->sent_bytes(0) + network_->sent_bytes(1);
    const auto zero = start(0, {"--nnodes", "2"}, rank("DeepRank"), 2);
    const auto one = start(1, {"--nnodes", "2"}, rank("DeepRank"), 2);
    ASSERT_EQ(zero->wait(), 0) << zero->err() << one->err();
    ASSERT_EQ(one->wait(), 0) << one->err();
    sent[reshards] = network_->sent_bytes(0) + network_->sent_bytes(1) - before;
    std::cout << "reshard_after_forward = " << reshards << ": "
              << static_cast<double>(sent[reshards]) / (kDeepSteps * kDeepLayerBytes)
              << " units through the network a step\n";
  }
  // Backward gathers four of the eight units again.
  const int64_t of_backward = sent["true"] - sent["false"];
  EXPECT_GT(of_backward, 4 * kDeepSteps * kDeepLayerBytes);
  EXPECT_LT(std::abs(sent["2"] - sent["false"]), of_backward / 20);
}

// Each finds its own name at a loopback.
TEST_F(Hosts, FindEachOtherByNamesAsDebianWritesThem) {
  master_ = "host0";
  std::string line;
  run_example(line);
}

TEST_F(Hosts, TrainOverASlowNetwork) {
  if (!network_->delay(0, 20) || !network_->delay(1, 20)) {
    GTEST_SKIP() << "the kernel has no netem";
  }
  std::string line;
  run_example(line);
}

TEST_F(Hosts, ACableThatIsPulledEndsBothSides) {
  const auto zero = start(0, {"--nnodes", "2"}, rank());
  const auto one = start(1, {"--nnodes", "2"}, rank());
  ASSERT_TRUE(soon([&] { return trains("0.0") && trains("0.1"); })) << zero->err() << one->err();
  ASSERT_TRUE(network_->pull_cable(1));
  EXPECT_EQ(zero->wait(), 1) << zero->err();
  EXPECT_EQ(one->wait(), 1) << one->err();
  EXPECT_THAT(zero->err(), HasSubstr("the node host1 was lost"));
  EXPECT_THAT(one->err(),
              HasSubstr("lost the launcher that serves the rendezvous at 10.77.0.1:29500"));
  EXPECT_TRUE(soon([&] { return zero->alive().empty() && one->alive().empty(); }));
  EXPECT_FALSE(fs::exists(scratch_ / "finished"));
}

void send(const std::vector<pid_t>& processes, int signal) {
  for (const pid_t pid : processes) ::kill(pid, signal);
}

// As two machines that are suspended for longer than anybody waits for them, and wake one after the
// other: over gloo, and with two processes each over shared memory and gloo.
TEST_F(Hosts, AJobThatWasStoppedAsAWholeEndsWithTheSameWeights) {
  const double comm_timeout_s = std::min(patient_s(2), 10.0);
  for (const int processes : {1, 2}) {
    fs::path weights[2];
    for (const bool is_stopped : {false, true}) {
      const fs::path folder = scratch_ / (std::to_string(processes) + (is_stopped ? "s" : "u"));
      fs::create_directories(folder);
      weights[is_stopped ? 1 : 0] = folder / "final.safetensors";
      settings_ = {{kFolder, folder.string()},
                   {kEpochs, std::to_string(8 * processes)},
                   {kCommTimeout, std::to_string(comm_timeout_s)}};
      if (!is_stopped) settings_[kHurries] = "1";
      const auto zero = start(0, {"--nnodes", "2"}, rank(), processes);
      const auto one = start(1, {"--nnodes", "2"}, rank(), processes);
      if (is_stopped) {
        ASSERT_TRUE(soon([&] { return fs::exists(folder / "trains.0.0"); })) << zero->err();
      }
      for (const bool zero_leads : {true, false}) {
        if (!is_stopped) break;
        const auto first = (zero_leads ? zero : one)->alive();
        const auto second = (zero_leads ? one : zero)->alive();
        ASSERT_GT(first.size(), static_cast<size_t>(processes));  // launchers too
        ASSERT_GT(second.size(), static_cast<size_t>(processes));
        send(first, SIGSTOP);
        send(second, SIGSTOP);
        ASSERT_FALSE(fs::exists(folder / "finished"));
        std::this_thread::sleep_for(std::chrono::duration<double>(2.25 * comm_timeout_s));
        send(first, SIGCONT);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        send(second, SIGCONT);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      }
      EXPECT_EQ(zero->wait(), 0) << zero->err() << one->err();
      EXPECT_EQ(one->wait(), 0) << one->err();
    }
    EXPECT_EQ(small_run::off_by(weights[0], weights[1], 0), "") << processes << " on each host";
  }
}

TEST_F(Hosts, AnElasticRunGoesOnWithoutTheHostThatIsCutOff) {
  const Words elastic = {"--nnodes", "1:2", "--max-restarts", "2"};
  const auto zero = start(0, elastic, rank());
  const auto one = start(1, elastic, rank());
  ASSERT_TRUE(soon([&] { return trains("0.0") && trains("0.1"); })) << zero->err() << one->err();
  ASSERT_TRUE(network_->pull_cable(1));
  EXPECT_EQ(zero->wait(), 0) << zero->err();
  EXPECT_EQ(one->wait(), 1) << one->err();
  EXPECT_THAT(zero->err(), HasSubstr("continuing with 1 nodes"));
  EXPECT_TRUE(fs::exists(scratch_ / "finished"));
  EXPECT_GE(std::stoi("0" + get(scratch_ / "began.1.0")), 25);
  EXPECT_TRUE(soon([&] { return zero->alive().empty() && one->alive().empty(); }));
}

}  // namespace
