// Saves and loads 100 M parameters with Adam's two moments, on the ranks of torchrun's environment.
//
//   torchrun --nproc-per-node 2 --no-python peer_checkpoint FOLDER ROUNDS
//
// Prints seconds of each round, as rank 0 sees them, from all ranks ready to all ranks done: a save,
// a load into tensors that are there, and what an asynchronous save holds up: its start and its end.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "levin/checkpoint/async_saves.h"
#include "levin/checkpoint/checkpoint_save.h"
#include "levin/comm/process_group.h"

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
double seconds_of(levin::comm::ProcessGroup& world, const Body& body) {
  world.barrier();
  const auto begin = std::chrono::steady_clock::now();
  body();
  world.barrier();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  at::set_num_threads(1);
  const fs::path folder = argv[1];
  const int rounds = std::atoi(argv[2]);
  auto world = levin::comm::ProcessGroup::connect(levin::comm::read_environment(), {});
  const levin::Checkpoint checkpoint = checkpoint_of(1.0), other = checkpoint_of(2.0);
  levin::AsyncSaves saves(world);
  std::vector<double> save, loaded, stall;
  for (int round = 0; round < rounds; ++round) {
    const fs::path place = folder / fmt::format("round_{}", round);
    save.push_back(
        seconds_of(world, [&] { levin::CheckpointSave(place, checkpoint, world).finish(); }));
    loaded.push_back(seconds_of(world, [&] { load(place, other); }));
    const double start = seconds_of(world, [&] { saves.start(place / "behind", checkpoint, {}); });
    std::this_thread::sleep_for(
        std::chrono::seconds(5));  // training, that leaves the disk its time
    stall.push_back(start + seconds_of(world, [&] { saves.finish(); }));
    if (world.rank() == 0) fs::remove_all(place);
  }
  if (world.rank() == 0) {
    fmt::print("{{\"save\": [{}], \"load\": [{}], \"stall\": [{}]}}\n", fmt::join(save, ", "),
               fmt::join(loaded, ", "), fmt::join(stall, ", "));
  }
  return 0;
}
