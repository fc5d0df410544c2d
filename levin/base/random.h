#pragma once
// Seeds, and the state of LibTorch's random generators. A program sets the seed before it builds a
// module. Every checkpoint holds the state, so that random numbers (dropout, say) continue after a
// resume as they would have without the interruption.
//
//   levin::seed_everything(42);
//   Net net;
//   const levin::State state = levin::random_state();

#include <cstdint>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace levin {

/// Seeds LibTorch's generators of all devices (torch::manual_seed) and returns the seed. Data
/// loaders without a seed of their own derive theirs from it. It follows Lightning's
/// seed_everything.
LEVIN_API int64_t seed_everything(int64_t seed);

/// Returns the seed of the default CPU generator: the last one set, or LibTorch's own random seed
/// if none was set.
LEVIN_API int64_t current_seed();

/// Returns the seed that LibTorch starts with, which is another number in each process.
LEVIN_API int64_t default_seed();
/// Returns whether the program has set a seed or loaded a saved random state.
inline bool is_seeded() { return current_seed() != default_seed(); }

/// Derives a seed for one purpose (stream) and index from another seed. The result is the same on
/// every machine: a 64-bit mix (splitmix64) of the three numbers.
LEVIN_API uint64_t derive_seed(uint64_t seed, uint64_t stream, uint64_t index = 0);

/// Returns the state of LibTorch's default generators as uint8 tensors: {"cpu": bytes, "cuda":
/// {"0": bytes, ...}}. The CUDA generators are in it only if there is CUDA.
LEVIN_API State random_state();

/// Loads what random_state() returned. Throws Error "base.state.missing" if the CPU generator's
/// state is not in it. CUDA generators that the state or this machine lacks are skipped.
LEVIN_API void load_random_state(const State& state);

}  // namespace levin
