#pragma once
// Seeds, and the state of LibTorch's random generators.
// Set before a module is built; saved with every checkpoint, so that dropout goes on as it would.

#include <cstdint>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace levin {

/// Seeds LibTorch's generators of all devices (torch::manual_seed) and returns the seed. Loaders
/// without a seed of their own derive theirs from it. Follows Lightning's function of that name.
LEVIN_API int64_t seed_everything(int64_t seed);

/// The seed last given to the CPU generator (LibTorch's own, which is random, when none was).
LEVIN_API int64_t current_seed();

/// The seed that LibTorch has when none was given: another number in each process.
LEVIN_API int64_t default_seed();
/// Whether a seed was given, or a saved state taken up.
inline bool is_seeded() { return current_seed() != default_seed(); }

/// A seed for one purpose, the same on every machine: a 64-bit mix (splitmix64) of the three.
LEVIN_API uint64_t derive_seed(uint64_t seed, uint64_t stream, uint64_t index = 0);

/// {"cpu": bytes, "cuda": {"0": bytes, ...}}, uint8 tensors; CUDA generators only where CUDA is.
LEVIN_API State random_state();

/// Throws Error "base.state.missing" when the CPU generator's state is not in it.
LEVIN_API void load_random_state(const State& state);

}  // namespace levin
