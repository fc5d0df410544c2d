#pragma once
// reduce: one result out of the same elements of several ranks, always in rank order, so that every
// rank and every run gets the same bits.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace levin::comm {

enum class Reduction { kSum, kMean, kMin, kMax, kProduct, kAnd, kOr, kXor };

/// result[i] = sources[0][i] op sources[1][i] op ...; result may be one of the sources. Half and
/// bfloat16 are computed in float and rounded once. Throws "comm.reduce" for a type that the
/// operation is not defined for.
void reduce(Reduction reduction, at::ScalarType type, std::byte* result,
            std::span<const std::byte* const> sources, int64_t count);

/// Throws what reduce would throw, before anything is exchanged.
void check_reducible(Reduction reduction, at::ScalarType type);

}  // namespace levin::comm
