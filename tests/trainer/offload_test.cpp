// --offload optimizer: runs with the optimizer's state in a file are runs with it in memory, bit for bit, under every
// strategy, resumed in either direction, in less memory than the state takes, killed, and on a full disk.
#include "levin/accelerator/engine/offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <thread>

#include "levin/accelerator/accelerator.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/files/checksum.h"
#include "levin/graph/meta/init_on_meta.h"
#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/small_disk.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace offloaded {
namespace {

using namespace small_run;  // NOLINT
using levin::State;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Classifier : Net {
  std::optional<levin::OptimizerConfig> config;
  levin::OptimizerConfig configure_optimizers() override {
    return config ? *config : Net::configure_optimizers();
  }
};

struct Case {
  std::string name;
  void (*change)(levin::TrainerOptions&, Classifier&) = [](levin::TrainerOptions&, Classifier&) {};
  std::vector<std::string> only = {};  ///< strategies; empty: all
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

struct Way {
  std::string strategy = "ddp";
  std::string backend = "shm";
  int64_t zero_stage = 2;
  std::string state = "optimizer";
};

void offload(levin::TrainerOptions& options, const std::string& state = "optimizer") {
  options.engine.offload = {.state = state, .tmpfs = true, .memory_mb = 1};
}

/// The weights that a run leaves.
State trained(const Case& c, const Way& way, const fs::path& root, bool is_offloaded) {
  torch::manual_seed(9);
  const auto net = std::make_shared<Classifier>();
  auto options = quiet(root.string());
  options.enable_checkpointing = false;
  options.max_epochs = 2;
  options.seed = 4;
  options.strategy = way.strategy;
  options.engine.comm.backend = way.backend;
  options.engine.fsdp.zero_stage = way.zero_stage;
  c.change(options, *net);
  if (is_offloaded) offload(options, way.state);
  levin::Trainer trainer(options);
  trainer.fit(net, levin::DataLoader(dataset(90), {.batch_size = 8, .shuffle = true}));
  return levin::full(*net);
}

std::string difference(const State& got, const State& wanted) {
  if (got.values().size() != wanted.values().size()) return "other names";
  for (const auto& [name, value] : wanted.values()) {
    if (!torch::equal(got.tensor(name), wanted.tensor(name))) return name + " differs";
  }
  return "";
}

std::string compare(const Case& c, const Way& way, const fs::path& folder) {
  const bool is_asked = c.only.empty() || std::ranges::find(c.only, way.strategy) != c.only.end();
  if (!is_asked) return "";
  const State wanted = trained(c, way, folder, false);
  const std::string off = difference(trained(c, way, folder, true), wanted);
  if (off.empty()) return "";
  return c10::str(way.strategy, way.zero_stage, " over ", way.backend, ": ", off);
}

class OffloadedTraining : public ::testing::TestWithParam<Case> {};

TEST_P(OffloadedTraining, OnOneRankIsThatInMemory) {
  const Scratch root;
  EXPECT_EQ(compare(GetParam(), {.strategy = "auto"}, root.path()), "");
  EXPECT_EQ(compare(GetParam(), {.strategy = "fsdp", .state = "parameters"}, root.path()), "");
}

TEST_P(OffloadedTraining, OnTwoRanksIsThatInMemoryUnderEveryStrategy) {
  const Case& c = GetParam();
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) {
    std::string all;
    for (const Way& way :
         {Way{"ddp"}, Way{"fsdp"}, Way{"fsdp", "gloo"}, Way{"zero", "shm", 1},
          Way{"zero", "shm", 2}, Way{"zero", "gloo", 3}, Way{"fsdp", "shm", 2, "parameters"},
          Way{"fsdp", "gloo", 2, "parameters"}, Way{"zero", "shm", 3, "parameters"}}) {
      all += compare(c, way, folder);
    }
    return all;
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(
    All, OffloadedTraining,
    ::testing::Values(
        Case{.name = "AdamW"},
        Case{.name = "SgdClipped",
             .change =
                 [](levin::TrainerOptions& o, Classifier& net) {
                   net.config = levin::optim::sgd({.lr = 0.1, .momentum = 0.9});
                   o.gradient_clip_val = 0.05;
                 }},
        Case{.name = "NAdamAccumulated",
             .change =
                 [](levin::TrainerOptions& o, Classifier& net) {
                   net.config = levin::optim::nadam({.lr = 1e-2});
                   o.accumulate_grad_batches = 4;  // the last group of an epoch is short
                 }},
        Case{.name = "Rmsprop",
             .change = [](auto&,
                          Classifier& net) { net.config = levin::optim::rmsprop({.lr = 1e-2}); }},
        Case{.name = "AdamWFp16MixedWithSkippedSteps",
             .change =
                 [](levin::TrainerOptions& o, Classifier&) {
                   o.precision = "16-mixed";
                   o.engine.scaler.init_scale = 1e9;  // the first steps overflow
                 }},
        Case{.name = "AdamWBf16TrueWithMasterWeights",
             .change =
                 [](levin::TrainerOptions& o, Classifier&) {
                   o.precision = "bf16-true";
                   o.engine.master_weights = true;
                 }},
        Case{.name = "AdamWInDouble",
             .change = [](levin::TrainerOptions& o, Classifier&) { o.precision = "64-true"; }},
        Case{.name = "AdamWInWaves",
             .change =
                 [](levin::TrainerOptions& o, Classifier&) {
                   o.strategy = "ddp";
                   o.engine.ddp.overlap_update = true;
                   o.engine.ddp.bucket_cap_mb = o.engine.ddp.first_bucket_mb = 1e-4;
                 },
             .only = {"ddp"}}),
    [](const auto& info) { return info.param.name; });

TEST(OffloadedTraining, SkipsTheStepsThatOverflow) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 2;
  options.precision = "16-mixed";
  options.engine.scaler.init_scale = 1e9;
  offload(options);
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Net>(), levin::DataLoader(dataset(90), {.batch_size = 8}));
  const State training = levin::load_checkpoint(root / "checkpoints/last").training;
  const State& optimizer = training.child("optimizers").child("0").child("optimizer");
  const int64_t steps = optimizer.child("parameters").child("net.0.weight").integer("step");
  EXPECT_GT(steps, 0);
  EXPECT_LT(steps, 24) << "some were left out";
}

// Resumed.

struct Part {
  std::string strategy;
  bool is_offloaded = false;
  bool saves_async = false;
  std::string state = "optimizer";
};

/// Trains up to an epoch, from the last checkpoint on.
State trained_until(int64_t epoch, const Part& part, const fs::path& root) {
  torch::manual_seed(9);
  const auto net = std::make_shared<Classifier>();
  net->config = levin::optim::adamw({.lr = 1e-2});  // no schedule, which would end with each part
  auto options = quiet(root.string());
  options.max_epochs = epoch;
  options.seed = 4;
  options.strategy = part.strategy;
  options.ckpt_path = "last";
  options.callbacks = {levin::model_checkpoint(
      {.dirpath = (root / "ckpt").string(), .save_last = true, .async_save = part.saves_async})};
  if (part.is_offloaded) offload(options, part.state);
  levin::Trainer trainer(options);
  trainer.fit(net, levin::DataLoader(dataset(90), {.batch_size = 8, .shuffle = true}));
  return levin::full(*net);
}

void expect_resumed(int64_t ranks, const std::string& strategy,
                    const std::string& state = "optimizer") {
  const auto words = run_world(ranks, [&](int64_t, const fs::path& folder) {
    const State wanted = trained_until(4, {strategy}, folder / "whole");
    std::string all;
    int64_t number = 0;
    const Part memory{strategy}, file{strategy, true, false, state};
    const Part async{strategy, true, /*saves_async=*/true, state};
    for (const auto& [first, second] :
         {std::pair(file, memory), {memory, file}, {file, file}, {async, async}}) {
      const fs::path own = folder / std::to_string(number++);
      trained_until(2, first, own);
      all += difference(trained_until(4, second, own), wanted);
    }
    return all;
  });
  EXPECT_THAT(words, Each("")) << strategy;
}

TEST(OffloadedResume, GoesOnInMemoryAndBackBitForBit) { expect_resumed(1, "auto"); }
TEST(OffloadedResume, GoesOnUnderDdp) { expect_resumed(2, "ddp"); }
TEST(OffloadedResume, GoesOnUnderFsdp) { expect_resumed(2, "fsdp"); }
TEST(OffloadedResume, GoesOnWithParametersInTheFile) {
  expect_resumed(1, "fsdp", "parameters");
  expect_resumed(2, "fsdp", "parameters");
}

/// The tensors of a checkpoint are those of one in memory, byte for byte.
TEST(OffloadedResume, SavesTheFilesOfARunInMemory) {
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) -> std::string {
    for (const char* strategy : {"ddp", "zero"}) {
      const fs::path one = folder / strategy / "memory", other = folder / strategy / "file";
      const fs::path async = folder / strategy / "async";
      trained_until(1, {strategy}, one);
      trained_until(1, {strategy, true}, other);
      trained_until(1, {strategy, true, /*saves_async=*/true}, async);
      for (const char* file : {"model.safetensors", "training_state.safetensors"}) {
        const std::string wanted = levin::test::get(one / "ckpt/last" / file);
        if (wanted.empty()) return std::string("no ") + file;
        if (levin::test::get(other / "ckpt/last" / file) != wanted)
          return std::string(file) + " differs";
        if (levin::test::get(async / "ckpt/last" / file) != wanted)
          return std::string(file) + " of async differs";
      }
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

// Less memory than the state.

constexpr const char* kMode = "OFFLOAD_TEST_MODE";
constexpr const char* kFolder = "OFFLOAD_TEST_FOLDER";
constexpr int64_t kWide = 4096;

/// 16 million parameters: 64 MB, and 128 MB of AdamW's state.
struct Wide : levin::Module {
  torch::nn::Linear layer{nullptr};
  Wide() { layer = register_module("layer", torch::nn::Linear(kWide, kWide)); }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    return layer->forward(batch["x"]).square().mean();
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-3});
  }
};

int64_t data_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmData:")) return std::stoll(line.substr(7)) << 10;
  }
  return 0;
}

/// Limits the memory that the process may have from then on to so many bytes more.
void limit_memory(int64_t more) {
  const auto bytes = static_cast<rlim_t>(data_bytes() + more);
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_DATA, &limit);
}

/// Trains on rows of that width as the mode says, within `limit` bytes more if it is limited, and leaves
/// a digest of each parameter.
void run_as_told(const std::string& strategy, const std::string& state,
                 const std::shared_ptr<levin::Module>& net, int64_t width, int64_t limit) {
  at::set_num_threads(1);
  torch::manual_seed(2);
  const std::string mode = std::getenv(kMode);
  auto options = quiet(std::getenv(kFolder));
  options.enable_checkpointing = false;
  options.max_steps = 3;
  options.strategy = strategy;
  if (mode.starts_with("offload")) {
    options.engine.offload = {.state = state, .tmpfs = true, .memory_mb = 16};
  }
  const auto data = levin::data::tensors({{"x", torch::randn({12, width})}});
  levin::Trainer trainer(options);
  if (mode.ends_with("limited")) limit_memory(limit);
  trainer.fit(net, levin::DataLoader(data, {.batch_size = 4}));
  std::string digests;
  for (const auto& [name, parameter] : levin::named_parameters(*net)) {
    const at::Tensor weights = strategy == "single" ? parameter.detach() : levin::full(parameter);
    const std::span bytes(static_cast<const std::byte*>(weights.const_data_ptr()),
                          weights.nbytes());
    digests += std::to_string(levin::files::xxh3(bytes)) + " ";
  }
  levin::test::put(fs::path(std::getenv(kFolder)) / "digest", digests);
}

// The memory of the gradient, and not of the state.
TEST(OffloadedMemory, DISABLED_Run) {
  torch::manual_seed(1);
  run_as_told("single", "optimizer", std::make_shared<Wide>(), kWide, int64_t{150} << 20);
}

/// The digest of the weights; what the process said where it failed.
std::string run_limited(const std::string& mode, const std::string& test = "DISABLED_Run") {
  const Scratch scratch;
  ::setenv(kMode, mode.c_str(), 1);
  ::setenv(kFolder, scratch.str().c_str(), 1);
  const int code = levin::test::run_in_own_process("OffloadedMemory." + test, scratch / "log");
  if (code == 0) return levin::test::get(scratch / "digest");
  return "failed: " + levin::test::get(scratch / "log");
}

TEST(OffloadedMemory, TrainsAModelWhoseStateDoesNotFitWithTheNumbersOfOneThatFits) {
  const std::string wanted = run_limited("memory");
  EXPECT_THAT(wanted, ::testing::Not(HasSubstr("failed")));
  EXPECT_EQ(run_limited("offload"), wanted);
  EXPECT_EQ(run_limited("offload limited"), wanted);
  EXPECT_THAT(run_limited("memory limited"),
              AllOf(StartsWith("failed: "), HasSubstr("allocate memory")));
}

/// Eight layers of 4 million parameters, each a unit: 16 MB of parameters, and 32 MB of AdamW's state.
struct Deep : levin::Module {
  torch::nn::Sequential layers{nullptr};
  static constexpr int64_t kLayers = 8, kWidth = 2048;
  Deep() {
    layers = register_module("layers", torch::nn::Sequential());
    for (int64_t i = 0; i < kLayers; ++i) {
      layers->push_back(
          levin::wrap(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false))));
    }
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    return layers->forward(batch["x"]).square().mean();
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-3});
  }
};

// The gradients are 128 MB, and three units with the ring 80 MB; parameters and state are 384 MB.
TEST(OffloadedMemory, DISABLED_RunOfUnits) {
  torch::manual_seed(1);
  run_as_told("fsdp", "parameters", levin::init_on_meta([] { return std::make_shared<Deep>(); }),
              Deep::kWidth, int64_t{290} << 20);
}

TEST(OffloadedMemory, TrainsAModelWhoseParametersAndStateDoNotFitWithTheNumbersOfOneThatFits) {
  const std::string test = "DISABLED_RunOfUnits", wanted = run_limited("memory", test);
  EXPECT_THAT(wanted, ::testing::Not(HasSubstr("failed")));
  EXPECT_EQ(run_limited("offload", test), wanted);
  EXPECT_EQ(run_limited("offload limited", test), wanted);
  EXPECT_THAT(run_limited("memory limited", test),
              AllOf(StartsWith("failed: "), HasSubstr("allocate memory")));
}

// Kills and full disks.

TEST(OffloadedKill, LeavesNothingBehindAndTheLastCheckpointWhole) {
  const Scratch whole, scratch;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // as in the child
  const State wanted = trained_until(4, {"auto"}, whole.path());
  const pid_t child = levin::test::start_child([&] {
    at::set_num_threads(1);
    torch::manual_seed(9);
    struct Slow : Classifier {
      Slow() { config = levin::optim::adamw({.lr = 1e-2}); }
      void on_train_epoch_start() override {
        if (current_epoch() == 3) std::this_thread::sleep_for(std::chrono::seconds(200));
      }
    };
    auto options = quiet(scratch.str());
    options.max_epochs = 4;
    options.seed = 4;
    options.callbacks = {
        levin::model_checkpoint({.dirpath = (scratch / "ckpt").string(), .save_last = true})};
    offload(options);
    const auto net = std::make_shared<Slow>();  // before the Trainer seeds
    levin::Trainer(options).fit(net,
                                levin::DataLoader(dataset(90), {.batch_size = 8, .shuffle = true}));
    return 0;
  });
  const auto has_checkpoint = [&] { return fs::exists(scratch / "ckpt/last/manifest.json"); };
  for (int64_t tries = 0; tries < 3000 && !has_checkpoint(); ++tries) ::usleep(20'000);
  ::usleep(200'000);
  ::kill(child, SIGKILL);
  EXPECT_EQ(levin::test::wait_for(child), -SIGKILL);
  EXPECT_THAT(levin::test::names_in(scratch.path()), ::testing::ElementsAre("ckpt"));
  EXPECT_EQ(difference(trained_until(4, {"auto", true}, scratch.path()), wanted), "");
  at::set_num_threads(threads);
}

TEST(OffloadedDisk, ThatFillsUpIsAnErrorAndLeavesTheCheckpointBefore) {
  const Scratch scratch;
  const int code = levin::test::run_child([&] {
    at::set_num_threads(1);
    if (!levin::test::mount_small_disk(scratch.str(), 200'000)) return levin::test::kSkipped;
    auto options = quiet(scratch.str());
    options.max_epochs = 100;
    options.callbacks = {levin::model_checkpoint({.save_top_k = -1})};
    offload(options);
    const std::string error = error_of([&] {
      levin::Trainer(options).fit(std::make_shared<Net>(),
                                  levin::DataLoader(dataset(16), {.batch_size = 8}));
    });
    const bool is_clear = error.find("trainer.checkpoint: ") != std::string::npos &&
                          error.find("no space left on device") != std::string::npos;
    int64_t whole = 0;
    for (const auto& name : levin::test::names_in(scratch / "checkpoints")) {
      levin::load_checkpoint(scratch / "checkpoints" / name);
      ++whole;
    }
    std::fprintf(stderr, "%s\n%ld checkpoints\n", error.c_str(), static_cast<long>(whole));
    return is_clear && whole > 0 ? 0 : 1;
  });
  if (code == levin::test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0);
}

TEST(OffloadedDisk, ThatIsTooSmallForTheStateIsAnErrorBeforeTraining) {
  const Scratch scratch;
  const int code = levin::test::run_child([&] {
    at::set_num_threads(1);
    if (!levin::test::mount_small_disk(scratch.str(), 1 << 20)) return levin::test::kSkipped;
    auto options = quiet(scratch.str());
    options.enable_checkpointing = false;
    options.max_steps = 1;
    offload(options);
    const auto data = levin::data::tensors({{"x", torch::randn({4, kWide})}});
    const std::string error = error_of([&] {
      levin::Trainer(options).fit(std::make_shared<Wide>(),
                                  levin::DataLoader(data, {.batch_size = 4}));
    });
    const bool is_clear =
        error.find("files.scratch: cannot take ") != std::string::npos &&
        error.find("no space left on device; free some space") != std::string::npos;
    return is_clear ? 0 : 1;
  });
  if (code == levin::test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0);
}

// Options.

template <class Change>
std::string error_with(const Change& change, at::Device device = at::kCPU) {
  levin::AcceleratorOptions options{.accelerator = "cpu"};
  options.engine.offload.state = "optimizer";
  change(options);
  return error_of([&] { levin::detail::check_offload(options, device); });
}

TEST(OffloadOptions, ThatCannotBeAreNamed) {
  const auto none = [](auto&) {};
  EXPECT_EQ(error_with(none), "no error");
  EXPECT_EQ(error_with(none, at::kCUDA), "no error");
  EXPECT_THAT(error_with(
                  [](auto& o) {
                    o.engine.offload.state = "parameters";
                    o.strategy = "fsdp";
                  },
                  at::kCUDA),
              StartsWith("accelerator.offload: got --offload parameters with a GPU, which supports "
                         "--offload optimizer only"));
  EXPECT_THAT(error_with([](auto& o) { o.engine.offload.folder = "/tmp"; }, at::kCUDA),
              StartsWith("accelerator.offload: got --offload-folder with a GPU, whose optimizer "
                         "state is kept in pinned memory of the host"));
  EXPECT_THAT(error_with([](auto& o) { o.engine.offload.tmpfs = true; }, at::kCUDA),
              StartsWith("accelerator.offload: got --offload-tmpfs with a GPU"));
  EXPECT_THAT(error_with([](auto& o) { o.accelerator = "xla"; }),
              StartsWith("accelerator.offload: got --offload optimizer with XLA devices"));
  EXPECT_THAT(error_with([](auto& o) { o.engine.compile = "replay"; }),
              StartsWith("accelerator.offload: got --offload optimizer with --compile replay"));
  EXPECT_THAT(
      error_with([](auto& o) { o.engine.offload.state = "parameters"; }),
      StartsWith("accelerator.offload: got --offload parameters with strategy 'auto', which "
                 "keeps all parameters in memory; set --strategy fsdp"));
  EXPECT_THAT(error_with([](auto& o) { o.engine.offload.state = "disk"; }),
              StartsWith("accelerator.offload: got 'disk', wanted no, optimizer or parameters"));
  EXPECT_THAT(error_with([](auto& o) { o.engine.offload.memory_mb = 0; }),
              StartsWith("accelerator.offload: got --offload-memory-mb 0"));
  EXPECT_THAT(error_with([](auto& o) { o.engine.offload = {.folder = "/tmp"}; }),
              StartsWith("accelerator.offload: got --offload-folder, which has an effect with"));
  EXPECT_THAT(error_with([](auto& o) { o.engine.offload = {.memory_mb = 3}; }),
              StartsWith("accelerator.offload: got --offload-memory-mb, which"));
  EXPECT_THAT(error_with([](auto& o) { o.engine.offload = {.tmpfs = true}; }),
              StartsWith("accelerator.offload: got --offload-tmpfs, which"));
}

TEST(OffloadOptions, AreCheckedByTheTrainerAndTheAccelerator) {
  const Scratch root;
  auto options = quiet(root.str());
  offload(options);
  options.engine.compile = "replay";
  EXPECT_THAT(error_of([&] { levin::Trainer trainer(options); }),
              StartsWith("accelerator.offload: "));
  levin::AcceleratorOptions of_loop{.cpu = true};
  of_loop.engine.offload = {.state = "optimizer", .folder = root.str(), .tmpfs = true};
  levin::Accelerator accelerator(of_loop);
  torch::nn::Linear net(3, 2);
  accelerator.prepare(net);
  const auto own =
      std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_THAT(error_of([&] { accelerator.prepare(own); }),
              AllOf(StartsWith("accelerator.offload: "), HasSubstr("optimizer of torch::optim")));
}

TEST(OffloadOptions, SayWhereTheStateIs) {
  const Scratch root;
  auto options = quiet(root.str());
  options.enable_checkpointing = false;
  options.max_steps = 1;
  offload(options);
  ::testing::internal::CaptureStderr();
  levin::Trainer(options).fit(std::make_shared<Net>(),
                              levin::DataLoader(dataset(16), {.batch_size = 8}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("offload: 1 MB of this rank's state are in a file in " + root.str()));
}

}  // namespace
}  // namespace offloaded
