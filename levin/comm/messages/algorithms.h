#pragma once
// Algorithms: which way a collective takes over messages, by the size of the tensor and the number
// of ranks. Fixed for a run and the same on every rank, so that results repeat bit for bit; the
// sums of both ways are in rank order, and equal.

#include <cstdint>

namespace levin::comm {

enum class Carrier { kMpi, kGloo };

/// For tensors of all sizes.
struct Algorithms {
  /// Bytes of all ranks' tensors together. Up to here every rank sends all its data to every other
  /// rank and reduces for itself, which takes the time of one message. Above, each rank reduces a
  /// part for the others, which takes the time of two messages and moves the fewest bytes that a
  /// reduction can.
  int64_t whole_up_to_bytes;
  /// Bytes of one exchange of parts. While one is under way the last one is given out.
  int64_t chunk_bytes;
};

/// From the tables of bench/RANKS.md (`bench_collectives`).
Algorithms algorithms_of(Carrier carrier, int64_t ranks);

}  // namespace levin::comm
