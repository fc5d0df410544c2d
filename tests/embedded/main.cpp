// A larger program that trains by levin: what it has set for its process is as before when the last
// Trainer has ended, however it ended.
//
//   levin_embedded CASE FOLDER     0: as it should be; 1: stderr says what is not
//   levin_embedded --list          the cases that end with 0
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "levin/levin.h"
#include "tests/embedded/process_state.h"

namespace {

namespace fs = std::filesystem;
using embedded::ProcessState;

std::atomic<int> faults = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++faults;
  std::fprintf(stderr, "fault: %s\n", what.c_str());
}

void own_handler(int) {}
[[noreturn]] void own_ending() { ::_exit(42); }

/// Does something in its second step.
struct Busy : levin::Module {
  torch::nn::Linear layer{nullptr};
  std::function<void()> act;

  explicit Busy(std::function<void()> act) : act(std::move(act)) {
    layer = register_module("layer", torch::nn::Linear(6, 3));
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    if (index == 1 && act) act();
    const auto loss = torch::nn::functional::cross_entropy(layer(batch["x"]), batch["y"]);
    log("loss", loss);
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::adamw({}); }
};

levin::TrainerOptions options_in(const fs::path& folder) {
  return {.logger = false,
          .max_epochs = 1,
          .num_sanity_val_steps = 0,
          .enable_progress_bar = false,
          .enable_model_summary = false,
          .deterministic = true,
          .benchmark = true,
          .detect_anomaly = true,
          .default_root_dir = folder.string(),
          .exit_on_signal = false};
}

levin::DataLoader loader(int64_t workers = 0) {
  const auto x = torch::randn({24, 6}, at::make_generator<at::CPUGeneratorImpl>(5));
  return {levin::data::tensors({{"x", x}, {"y", x.sum(1).gt(0).to(torch::kLong)}}),
          {.batch_size = 8, .num_workers = workers}};
}

void train_in(const fs::path& folder, std::function<void()> act = nullptr, int64_t workers = 0) {
  levin::Trainer(options_in(folder)).fit(std::make_shared<Busy>(std::move(act)), loader(workers));
}

template <class Exception>
void expect_thrown(const std::string& what, const std::function<void()>& body) {
  try {
    body();
  } catch (const Exception&) {
    return;
  }
  expect(false, what + " was not thrown");
}

/// The program as it is before it first trains.
class Program {
 public:
  explicit Program(fs::path folder) : folder_(std::move(folder)) {
    struct sigaction own = {};
    own.sa_handler = own_handler;
    ::sigaction(SIGTERM, &own, nullptr);
    own.sa_handler = SIG_IGN;
    ::sigaction(SIGINT, &own, nullptr);
    std::set_terminate(own_ending);
    ::umask(027);
    ::setenv("OWN_VARIABLE", "own", 1);
    before_ = embedded::process_state();
  }
  fs::path operator/(const std::string& name) const { return folder_ / name; }
  const fs::path& folder() const { return folder_; }

  void expect_as_before(const std::string& after) const {
    const std::string lines = embedded::difference(before_, embedded::process_state());
    expect(lines.empty(), "after " + after + ":\n" + lines);
  }

 private:
  fs::path folder_;
  ProcessState before_;
};

/// Settings that a run asks for are in force meanwhile: else the cases would show nothing.
void expect_settings_of_a_run() {
  expect(at::globalContext().deterministicAlgorithms(), "deterministic is not set in a run");
  expect(std::get_terminate() != own_ending, "a run ends as the program does");
  struct sigaction now = {};
  ::sigaction(SIGTERM, nullptr, &now);
  expect(now.sa_handler != own_handler, "a run does not look at SIGTERM");
  expect(!embedded::has_the_systems_allocator() || !embedded::large_blocks_are_mapped(),
         "the allocator is not set in a run");
}

void repeated(const Program& program) {
  for (int i = 0; i < 3; ++i) {
    train_in(program.folder(), expect_settings_of_a_run, /*workers=*/2);
    program.expect_as_before("a fit");
  }
}

void nested(const Program& program) {
  train_in(program.folder(), [&] {
    train_in(program / "inner");
    expect_settings_of_a_run();  // the outer one goes on
  });
  program.expect_as_before("a fit within a fit");
}

void threaded(const Program& program) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 4; ++j) train_in(program / std::to_string(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  program.expect_as_before("fits in threads");
}

void failed(const Program& program) {
  const auto fail = [] { throw std::runtime_error("the step's own"); };
  expect_thrown<std::runtime_error>("the step's error", [&] { train_in(program.folder(), fail); });
  program.expect_as_before("a step that throws");
  expect_thrown<c10::Error>("LibTorch's error", [&] {
    train_in(program.folder(), [] { torch::ones({2, 3}).mm(torch::ones({2, 3})); });
  });
  program.expect_as_before("an error of LibTorch's");
  expect_thrown<std::runtime_error>("the inner step's error", [&] {
    train_in(program.folder(), [&] { train_in(program / "inner", fail); });
  });
  program.expect_as_before("an inner fit that throws");
  expect_thrown<levin::Error>("the wrong option", [] {
    levin::Trainer({.strategy = "none of these", .deterministic = true});
  });
  program.expect_as_before("a Trainer that cannot be made");
}

void ignored_signal(const Program& program) {
  {
    levin::Trainer trainer(options_in(program.folder()));
    trainer.fit(std::make_shared<Busy>([] { std::raise(SIGINT); }), loader());
    expect(trainer.interrupted() == 0, "a signal that the program ignores has stopped a run");
    expect(trainer.current_epoch() == 1, "the run did not go on");
  }
  program.expect_as_before("a signal that is ignored");
}

void signal_in_an_inner_fit(const Program& program) {
  {
    int64_t inner_steps = 0;
    levin::Trainer outer(options_in(program.folder()));
    outer.fit(std::make_shared<Busy>([&] {
                levin::Trainer inner(options_in(program / "inner"));
                inner.fit(std::make_shared<Busy>([] { std::raise(SIGTERM); }), loader());
                expect(inner.interrupted() == SIGTERM, "the inner fit did not stop");
                inner_steps = inner.global_step();
              }),
              loader());
    expect(inner_steps == 2, "the inner fit went on");
    expect(outer.interrupted() == SIGTERM && outer.global_step() == 2, "the outer fit went on");
    outer.fit(std::make_shared<Busy>(nullptr), loader());  // that one is not stopped by it
    expect(outer.interrupted() == 0, "a later fit was stopped by an old signal");
  }
  program.expect_as_before("a signal in an inner fit");
}

void same_trainer_in_itself(const Program& program) {
  levin::Trainer trainer(options_in(program.folder()));
  auto module = std::make_shared<Busy>(nullptr);
  int refused = 0;
  module->act = [&] {
    const auto other = std::make_shared<Busy>(nullptr);
    for (const std::function<void()>& call : std::vector<std::function<void()>>{
             [&] { trainer.fit(other, loader()); }, [&] { trainer.validate(other, loader()); },
             [&] { trainer.predict(other, loader()); }}) {
      try {
        call();
      } catch (const levin::Error& error) {
        const bool says = std::strstr(error.what(), "was called during fit of the same Trainer");
        if (error.id() == "trainer.run" && says) ++refused;
      }
    }
  };
  trainer.fit(module, loader());
  expect(refused == 3, fmt::format("{} of 3 calls of the same Trainer were refused", refused));
  expect(trainer.current_epoch() == 1, "the run did not go on");
  trainer.validate(module, loader());  // and is over
}

struct Case {
  const char* name;
  void (*run)(const Program&);
};

constexpr Case kCases[] = {{"repeated", repeated},
                           {"nested", nested},
                           {"threaded", threaded},
                           {"failed", failed},
                           {"ignored_signal", ignored_signal},
                           {"signal_in_an_inner_fit", signal_in_an_inner_fit},
                           {"same_trainer_in_itself", same_trainer_in_itself}};

/// As newcomers meet it: a wrong shape in a step, and nobody who catches. Ranks wait for each other
/// before, so that each has its own to say.
[[noreturn]] void uncaught(const fs::path& folder) {
  const levin::RankInfo rank = levin::rank_from_environment();
  std::thread([&] {
    train_in(folder / std::to_string(rank.rank), [&] {
      std::ofstream(folder / ("came." + std::to_string(rank.rank))) << "";
      for (int64_t other = 0; other < rank.world_size; ++other) {
        while (!fs::exists(folder / ("came." + std::to_string(other)))) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
      torch::ones({4, 3}).mm(torch::ones({5, 2}));
    });
  }).join();
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "--list") {
    for (const Case& one : kCases) std::printf("%s\n", one.name);
    return 0;
  }
  if (argc != 3) {
    std::fprintf(stderr, "usage: levin_embedded CASE FOLDER | --list\n");
    return 2;
  }
  at::set_num_threads(1);
  if (name == "uncaught") uncaught(argv[2]);
  for (const Case& one : kCases) {
    if (name != one.name) continue;
    one.run(Program(argv[2]));
    return faults == 0 ? 0 : 1;
  }
  std::fprintf(stderr, "no case %s\n", name.c_str());
  return 2;
}
