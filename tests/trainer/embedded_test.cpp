// levin within a larger program: what the program has set for its process is as before when the
// last Trainer has ended, however it ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <csignal>
#include <exception>
#include <map>
#include <thread>

#include "levin/base/error.h"
#include "levin/base/log.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using ::testing::HasSubstr;

void own_handler(int) {}
[[noreturn]] void own_ending() { ::_exit(42); }

/// What a program can set for its process.
struct ProcessState {
  std::map<int, void (*)(int)> handlers;
  std::terminate_handler ending = std::get_terminate();
  std::vector<std::string> environment;
  mode_t mask = 0;
  int threads = at::get_num_threads();
  int interop_threads = at::get_num_interop_threads();
  bool deterministic = at::globalContext().deterministicAlgorithms();
  bool warns_only = at::globalContext().deterministicAlgorithmsWarnOnly();
  bool benchmark = at::globalContext().benchmarkCuDNN();
  bool onednn = at::globalContext().userEnabledMkldnn();
  bool gradients = at::GradMode::is_enabled();
  bool anomaly = torch::autograd::AnomalyMode::is_enabled();
  at::ScalarType type = at::typeMetaToScalarType(at::get_default_dtype());
  std::string locale = std::setlocale(LC_ALL, nullptr);

  static ProcessState now() {
    ProcessState state;
    for (int signal = 1; signal < 32; ++signal) {
      struct sigaction action = {};
      if (::sigaction(signal, nullptr, &action) == 0) state.handlers[signal] = action.sa_handler;
    }
    for (char** entry = environ; *entry != nullptr; ++entry) state.environment.emplace_back(*entry);
    state.mask = ::umask(0);
    ::umask(state.mask);
    return state;
  }
  bool operator==(const ProcessState&) const = default;
};

/// Whether a large block comes from the system each time, as glibc has it at first.
bool large_blocks_are_mapped() {
#ifdef __GLIBC__
  const size_t before = ::mallinfo2().hblkhd;
  auto* block = static_cast<volatile char*>(std::malloc(31 << 20));  // more than the heap has free
  block[0] = 1;  // else the compiler leaves both calls out
  const bool mapped = ::mallinfo2().hblkhd > before;
  std::free(const_cast<char*>(block));
  return mapped;
#else
  return true;
#endif
}

levin::TrainerOptions loud(const std::string& root) {
  auto options = quiet(root);
  options.deterministic = true;
  options.benchmark = true;
  options.detect_anomaly = true;
  options.max_epochs = 1;
  return options;
}

levin::DataLoader small_loader(int64_t workers = 0) {
  return {dataset(24), {.batch_size = 8, .num_workers = workers}};
}

/// Does something in its second step.
struct Busy : Net {
  std::function<void()> act;
  explicit Busy(std::function<void()> act) : act(std::move(act)) {}
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    if (index == 1) act();
    return Net::training_step(batch, index);
  }
};

void train_in(const std::string& root, std::function<void()> act = [] {}, int64_t workers = 0) {
  levin::Trainer(loud(root)).fit(std::make_shared<Busy>(std::move(act)), small_loader(workers));
}

class Embedded : public ::testing::Test {
 protected:
  void SetUp() override {
    struct sigaction own = {};
    own.sa_handler = own_handler;
    ::sigaction(SIGTERM, &own, &term_);
    own.sa_handler = SIG_IGN;
    ::sigaction(SIGINT, &own, &interrupt_);
    ending_ = std::set_terminate(own_ending);
    before_ = ProcessState::now();
  }
  void TearDown() override {
    ::sigaction(SIGTERM, &term_, nullptr);
    ::sigaction(SIGINT, &interrupt_, nullptr);
    std::set_terminate(ending_);
  }
  void expect_as_before() const {
    const ProcessState now = ProcessState::now();
    EXPECT_EQ(now.handlers, before_.handlers);
    EXPECT_EQ(now.ending, before_.ending);
    EXPECT_EQ(now.environment, before_.environment);
    EXPECT_EQ(now.threads, before_.threads);
    EXPECT_TRUE(now == before_);
    EXPECT_TRUE(large_blocks_are_mapped());
  }

  Scratch root_;

 private:
  ProcessState before_;
  std::terminate_handler ending_ = nullptr;
  struct sigaction term_ = {}, interrupt_ = {};
};

TEST_F(Embedded, OneFitAfterAnother) {
  for (int i = 0; i < 3; ++i) {
    train_in(
        root_.str(),
        [] {
          EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
          EXPECT_FALSE(large_blocks_are_mapped());
          EXPECT_NE(std::get_terminate(), own_ending);
        },
        /*workers=*/2);
    expect_as_before();
  }
}

TEST_F(Embedded, AFitWithinAFit) {
  train_in(root_.str(), [&] {
    train_in((root_ / "inner").string());
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms());  // the outer one goes on
    EXPECT_NE(std::get_terminate(), own_ending);
    struct sigaction now = {};
    ::sigaction(SIGTERM, nullptr, &now);
    EXPECT_NE(now.sa_handler, own_handler);
  });
  expect_as_before();
}

TEST_F(Embedded, FitsInThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 4; ++j) train_in((root_ / std::to_string(i)).string());
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_as_before();
}

TEST_F(Embedded, FitsThatFail) {
  EXPECT_THROW(train_in(root_.str(), [] { throw std::runtime_error("the step's own"); }),
               std::runtime_error);
  expect_as_before();
  EXPECT_THROW(train_in(root_.str(), [] { torch::ones({2, 3}).mm(torch::ones({2, 3})); }),
               c10::Error);
  expect_as_before();
  EXPECT_THROW(train_in(root_.str(),
                        [&] {
                          train_in((root_ / "inner").string(),
                                   [] { throw std::runtime_error("the inner one's"); });
                        }),
               std::runtime_error);
  expect_as_before();
  EXPECT_THROW(levin::Trainer({.strategy = "none of these", .deterministic = true}), levin::Error);
  expect_as_before();
}

TEST_F(Embedded, ASignalThatTheProgramIgnoresStopsNothing) {
  auto module = std::make_shared<Busy>([] { std::raise(SIGINT); });
  levin::Trainer trainer(loud(root_.str()));
  trainer.fit(module, small_loader());
  EXPECT_EQ(trainer.interrupted(), 0);
  EXPECT_EQ(trainer.current_epoch(), 1);
}

TEST_F(Embedded, ASignalInAnInnerFitStopsTheOuterToo) {
  {
    int64_t inner_steps = 0;
    levin::Trainer outer(loud(root_.str()));
    outer.fit(std::make_shared<Busy>([&] {
                levin::Trainer inner(loud((root_ / "inner").string()));
                inner.fit(std::make_shared<Busy>([] { std::raise(SIGTERM); }), small_loader());
                EXPECT_EQ(inner.interrupted(), SIGTERM);
                inner_steps = inner.global_step();
              }),
              small_loader());
    EXPECT_EQ(inner_steps, 2);
    EXPECT_EQ(outer.interrupted(), SIGTERM);
    EXPECT_EQ(outer.global_step(), 2);
    outer.fit(std::make_shared<Busy>([] {}), small_loader());  // that one is not stopped by it
    EXPECT_EQ(outer.interrupted(), 0);
  }
  expect_as_before();
}

TEST_F(Embedded, TheSameTrainerRunsOneThingAtATime) {
  levin::Trainer trainer(loud(root_.str()));
  auto module = std::make_shared<Busy>([] {});
  std::vector<std::string> said;
  module->act = [&] {
    const auto other = std::make_shared<Net>();
    said = {levin::test::error_of([&] { trainer.fit(other, small_loader()); }),
            levin::test::error_of([&] { trainer.validate(other, small_loader()); }),
            levin::test::error_of([&] { trainer.predict(other, small_loader()); })};
  };
  trainer.fit(module, small_loader());
  for (const std::string& text : said) {
    EXPECT_THAT(text, HasSubstr("trainer.run: "));
    EXPECT_THAT(text, HasSubstr("was called in a fit of the same Trainer"));
  }
  EXPECT_EQ(said.size(), 3U);
  EXPECT_EQ(trainer.current_epoch(), 1);     // the run went on
  trainer.validate(module, small_loader());  // and is over
}

/// As newcomers meet it: a wrong shape in a step, and nobody who catches.
int uncaught_in_a_step(const fs::path& log, bool frames) {
  return levin::test::run_child([&]() -> int {
    at::set_num_threads(1);
    std::set_terminate(std::abort);
    if (frames) ::setenv("LEVIN_FRAMES", "1", 1);
    ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    std::thread([&] {
      train_in(log.parent_path().string(), [] { torch::ones({4, 3}).mm(torch::ones({5, 2})); });
    }).join();
    return 1;
  });
}

TEST(Uncaught, AWrongShapeIsOneLineWithItsPlace) {
  const Scratch root;
  EXPECT_EQ(uncaught_in_a_step(root / "log", false), 1);
  const std::string said = levin::test::get(root / "log");
  EXPECT_THAT(said, HasSubstr("\nerror: "));  // LibTorch 2.15 puts the operator's name before it
  EXPECT_THAT(said, HasSubstr("mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2) "
                              "[epoch 0, batch 1]"));
  EXPECT_EQ(said.find("frame #"), std::string::npos) << said;
  EXPECT_EQ(uncaught_in_a_step(root / "log", true), -SIGABRT);
  EXPECT_THAT(levin::test::get(root / "log"), HasSubstr("[epoch 0, batch 1]"));
}

}  // namespace
