// Saves and loads 100 M parameters with Adam's two moments, on the ranks of torchrun's environment.
//
//   torchrun --nproc-per-node 2 --no-python peer_checkpoint FOLDER ROUNDS [STEPS SAVES]
//
// Prints after each round the seconds of all so far, as rank 0 sees them, from all ranks ready to all
// ranks done: a save, a load into tensors that are there, what an asynchronous save holds up, its start
// and its end, and a save of the weights alone for Hugging Face; and the processor's time of the first
// two on rank 0, which a busy machine changes less. With STEPS it trains so many steps of such a model
// in SAVES turns, and as many with an asynchronous save in each turn, turn by turn, and prints the
// seconds of both, and of writing a save's bytes by write(2) alone.

#include "levin/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "levin/accelerator/accelerator.h"
#include "levin/checkpoint/async_saves.h"
#include "levin/checkpoint/checkpoint_save.h"
#include "levin/comm/process_group.h"
#include "levin/optim/optim.h"

namespace {

namespace fs = std::filesystem;

constexpr int64_t kLayers = 6, kSize = 4096;

levin::State layers(double value) {
  levin::State state;
  for (int64_t i = 0; i < kLayers; ++i) {
    state.set(fmt::format("{}.weight", i), torch::full({kSize, kSize}, value + i));
    state.set(fmt::format("{}.bias", i), torch::full({kSize}, value - i));
  }
  return state;
}

levin::Checkpoint checkpoint_of(double value) {
  levin::State optimizer, training;
  optimizer.set("exp_avg", layers(value + 0.25)).set("exp_avg_sq", layers(value + 0.5));
  training.set("optimizer", std::move(optimizer));
  return {{{"model", layers(value)}}, std::move(training)};
}

void copy(const levin::State& into, const levin::State& from) {
  for (const auto& [name, value] : from.values()) into.tensor(name).copy_(from.tensor(name));
}

void load(const fs::path& folder, const levin::Checkpoint& into) {
  const levin::Checkpoint read = levin::load_checkpoint(folder);
  copy(into.weights.at("model"), read.weights.at("model"));
  for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
    copy(into.training.child("optimizer").child(moment),
         read.training.child("optimizer").child(moment));
  }
}

template <class Body>
double seconds_of(levin::comm::ProcessGroup& world, Body&& body) {
  world.barrier();
  const auto begin = std::chrono::steady_clock::now();
  body();
  world.barrier();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Of this process.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Results {
  std::vector<double> save, load, stall, consolidated, save_cpu, load_cpu;

  void print() const {
    fmt::print(
        "{{\"save\": [{}], \"load\": [{}], \"stall\": [{}], \"consolidated\": [{}], "
        "\"save_cpu\": [{}], \"load_cpu\": [{}]}}\n",
        fmt::join(save, ", "), fmt::join(load, ", "), fmt::join(stall, ", "),
        fmt::join(consolidated, ", "), fmt::join(save_cpu, ", "), fmt::join(load_cpu, ", "));
    std::fflush(stdout);
  }
};

void save_and_load(const fs::path& folder, int rounds, levin::comm::ProcessGroup& world) {
  const levin::Checkpoint checkpoint = checkpoint_of(1.0), other = checkpoint_of(2.0);
  levin::AsyncSaves saves(world);
  Results results;
  for (int round = 0; round < rounds; ++round) {
    const fs::path place = folder / fmt::format("round_{}", round);
    const double before = cpu_seconds();
    results.save.push_back(
        seconds_of(world, [&] { levin::CheckpointSave(place, checkpoint, world).finish(); }));
    const double saved = cpu_seconds();
    results.load.push_back(seconds_of(world, [&] { load(place, other); }));
    results.save_cpu.push_back(saved - before);
    results.load_cpu.push_back(cpu_seconds() - saved);
    // Before the pause below, in which a virtual machine may give free memory back to its host: what is
    // written next would measure how it gets that again.
    const fs::path weights = folder / fmt::format("round_{}_weights", round);
    results.consolidated.push_back(seconds_of(world, [&] {
      levin::save_sharded_weights(weights, checkpoint.weights.at("model"), world, {});
    }));
    const fs::path behind = folder / fmt::format("round_{}_behind", round);
    const double start = seconds_of(world, [&] { saves.start(behind, checkpoint, {}); });
    // Training, that leaves the disk its time.
    std::this_thread::sleep_for(std::chrono::seconds(5));
    results.stall.push_back(start + seconds_of(world, [&] { saves.finish(); }));
    if (world.rank() == 0) {
      for (const fs::path& each : {place, behind, weights}) fs::remove_all(each);
      results.print();
    }
  }
}

torch::nn::Sequential model() {
  torch::nn::Sequential net;
  for (int64_t i = 0; i < kLayers; ++i) {
    net->push_back(torch::nn::Linear(kSize, kSize));
    net->push_back(torch::nn::ReLU());
  }
  return net;
}

/// As many bytes as a save is, by the plainest call there is: what the machine takes for them.
double plain_write(const fs::path& folder, levin::comm::ProcessGroup& world) {
  const levin::State own = layers(1.0);
  const fs::path file = folder / fmt::format("plain_{}", world.rank());
  constexpr int64_t kTimes = 3;  // with two moments
  const double seconds = seconds_of(world, [&] {
    const int number = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (int64_t i = 0; i < kTimes * kLayers; ++i) {
      const at::Tensor part = own.tensor(fmt::format("{}.weight", i % kLayers));
      const auto bytes = static_cast<size_t>(part.nbytes() / world.size());
      if (::write(number, part.const_data_ptr(), bytes) != static_cast<ssize_t>(bytes))
        std::abort();
    }
    ::fsync(number);
    ::close(number);
  });
  fs::remove(file);
  return seconds;
}

void train(const fs::path& folder, int steps, int turns) {
  levin::Accelerator accelerator({.cpu = true, .strategy = "ddp"});
  auto [net, optimizer] = accelerator.prepare(model(), levin::optim::adam({.lr = 1e-4}));
  const at::Tensor batch = torch::randn({32, kSize});
  auto some_steps = [&, net = net, optimizer = optimizer]() mutable {
    for (int step = 0; step < steps / turns; ++step) {
      optimizer.zero_grad();
      accelerator.backward(net->forward(batch).square().mean());
      optimizer.step();
      accelerator.poll_saves();
    }
  };
  some_steps();  // the first ones make their memory
  accelerator.save_state(folder / "first", {.async_save = true});
  accelerator.finish_saves();
  std::vector<double> without, with;
  for (int turn = 0; turn < turns; ++turn) {
    const fs::path place = folder / fmt::format("turn_{}", turn);
    without.push_back(seconds_of(accelerator.world(), some_steps));
    with.push_back(seconds_of(accelerator.world(), [&] {
      accelerator.save_state(place, {.async_save = true});
      some_steps();
      accelerator.finish_saves();
    }));
    if (accelerator.is_main_process()) fs::remove_all(place);
  }
  some_steps();  // as long as between two saves: memory that was free has gone back to a host
  const double plain = plain_write(folder, accelerator.world());
  if (accelerator.is_main_process()) {
    fmt::print("{{\"without\": [{}], \"with\": [{}], \"plain\": {}}}\n", fmt::join(without, ", "),
               fmt::join(with, ", "), plain);
    std::fflush(stdout);
  }
  if (accelerator.is_main_process()) fs::remove_all(folder / "first");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 5) return 2;
  at::set_num_threads(1);
  const fs::path folder = argv[1];
  if (argc == 5) {
    train(folder, std::stoi(argv[3]), std::stoi(argv[4]));
    return 0;
  }
  auto world = levin::comm::ProcessGroup::connect(levin::comm::read_environment(), {});
  save_and_load(folder, std::stoi(argv[2]), world);
  return 0;
}
