#include "levin/comm/messages/algorithms.h"

#include <array>

namespace levin::comm {
namespace {

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;

struct Row {
  Carrier carrier;
  int64_t least_ranks;
  Algorithms algorithms;
};

// The last row that fits. MPI's chunks stay in a core's second cache, since its messages are copies
// in memory; gloo's are large, since each costs it a turn of its thread.
constexpr std::array kRows = {
    Row{Carrier::kMpi, 2, {.whole_up_to_bytes = 128 * kKiB, .chunk_bytes = 1 * kMiB}},
    Row{Carrier::kGloo, 2, {.whole_up_to_bytes = 128 * kKiB, .chunk_bytes = 8 * kMiB}},
    Row{Carrier::kGloo, 8, {.whole_up_to_bytes = 256 * kKiB, .chunk_bytes = 16 * kMiB}},
};

}  // namespace

Algorithms algorithms_of(Carrier carrier, int64_t ranks) {
  Algorithms found = kRows[0].algorithms;
  for (const Row& row : kRows) {
    if (row.carrier == carrier && row.least_ranks <= ranks) found = row.algorithms;
  }
  return found;
}

}  // namespace levin::comm
