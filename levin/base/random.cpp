#include "levin/base/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

namespace levin {
namespace {

int64_t seed_of_cpu() {
  return static_cast<int64_t>(at::detail::getDefaultCPUGenerator().current_seed());
}

/// LibTorch's own choice, read before any code of the program runs.
const int64_t kDefaultSeed = seed_of_cpu();

}  // namespace

int64_t seed_everything(int64_t seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return seed;
}

int64_t current_seed() { return seed_of_cpu(); }

int64_t default_seed() { return kDefaultSeed; }

uint64_t derive_seed(uint64_t seed, uint64_t stream, uint64_t index) {
  uint64_t mixed = seed;
  for (const uint64_t word : {stream, index}) {
    mixed += 0x9e3779b97f4a7c15ULL + word;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
    mixed ^= mixed >> 31;
  }
  return mixed;
}

State random_state() {
  State state;
  {
    at::Generator cpu = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(cpu.mutex());
    state.set("cpu", cpu.get_state());
  }
  if (at::hasCUDA()) {
    State cuda;
    const auto devices = at::detail::getCUDAHooks().deviceCount();
    for (c10::DeviceIndex i = 0; i < devices; ++i) {
      at::Generator generator = at::globalContext().defaultGenerator({at::kCUDA, i});
      const std::lock_guard lock(generator.mutex());
      cuda.set(std::to_string(i), generator.get_state());
    }
    state.set("cuda", std::move(cuda));
  }
  return state;
}

void load_random_state(const State& state) {
  {
    at::Generator cpu = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(cpu.mutex());
    cpu.set_state(state.tensor("cpu"));
  }
  if (!at::hasCUDA() || !state.contains("cuda")) return;
  const auto devices = at::detail::getCUDAHooks().deviceCount();
  for (c10::DeviceIndex i = 0; i < devices; ++i) {
    const std::string key = std::to_string(i);
    if (!state.child("cuda").contains(key)) continue;
    at::Generator generator = at::globalContext().defaultGenerator({at::kCUDA, i});
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state.child("cuda").tensor(key));
  }
}

}  // namespace levin
