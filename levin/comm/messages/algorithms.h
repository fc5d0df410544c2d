#pragma once
// Algorithms: which way a collective takes over messages, by the size of the tensor and the number
// of ranks. Fixed for a run and the same on every rank, so that results repeat bit for bit; the
// sums of both ways are in rank order, and equal.

#include <cstdint>

namespace levin::comm {

enum class Carrier { kMpi, kGloo };

/// For tensors of all sizes.
struct Algorithms {
  /// Of all ranks' tensors together: up to here everyone sends everyone all it has, and reduces for
  /// itself; one message's time. Above, each rank reduces a part for the others: two messages'
  /// time, and the fewest bytes that a reduction can take.
  int64_t whole_up_to_bytes;
  /// What goes in one exchange of parts; while one is on its way the last one is given out.
  int64_t chunk_bytes;
};

/// From the tables of bench/RANKS.md (`bench_collectives`).
Algorithms algorithms_of(Carrier carrier, int64_t ranks);

}  // namespace levin::comm
