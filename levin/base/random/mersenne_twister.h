#pragma once
// LibTorch's random engine of the CPU (mt19937), moved without drawing. Stands under whatever wants
// some draws of a long row and not those before them.
//
//   at::mt19937_data_pod engine = generator->engine().data();
//   levin::detail::discard(engine, 10'000'000'000);  // milliseconds

#include <cstdint>

#include "levin/base/export.h"

namespace at {
struct mt19937_data_pod;
struct CPUGeneratorImpl;
}  // namespace at

namespace levin::detail {

/// Leaves the engine where this many draws of 32 bits would have left it, to the byte. Up to some
/// millions it steps; beyond, it jumps by the polynomial method of Haramoto, Matsumoto, Nishimura,
/// Panneton and L'Ecuyer (2008), whose time hardly depends on the distance.
LEVIN_API void discard(at::mt19937_data_pod& engine, uint64_t words);

/// Fills the generator's state with words of their own (splitmix64), all 64 bits of the seed among
/// them; LibTorch's way of seeding takes 32 and mixes all words before the first draw.
LEVIN_API void seed_quickly(at::CPUGeneratorImpl& generator, uint64_t seed);

}  // namespace levin::detail
