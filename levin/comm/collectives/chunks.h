#pragma once
// How collectives cut elements: into chunks that one exchange carries, into a share for each rank
// to reduce, and into one part per rank.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace levin::comm {

inline int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

struct Chunk {
  int64_t begin = 0;
  int64_t count = 0;
};

inline int64_t num_chunks(int64_t count, int64_t most) { return (count + most - 1) / most; }

/// The elements of a chunk that carries at most `most`; none after the last.
inline Chunk chunk_of(int64_t index, int64_t most, int64_t count) {
  const int64_t begin = std::min(index * most, count);
  return {begin, std::min(most, count - begin)};
}

/// The part of `count` elements that one of `ranks` works on.
inline Chunk share_of(int64_t rank, int64_t ranks, int64_t count) {
  // In cache lines of the largest element, so that no two ranks write to one.
  return chunk_of(rank, rounded_up(num_chunks(count, ranks), 64), count);
}

/// The number of elements of each rank's part. The parts lie one behind the other.
using Counts = std::span<const int64_t>;

inline int64_t sum_of(Counts counts) {
  int64_t sum = 0;
  for (const int64_t count : counts) sum += count;
  return sum;
}

inline int64_t longest_of(Counts counts) {
  return counts.empty() ? 0 : *std::ranges::max_element(counts);
}

/// Returns the first element of a rank's part.
inline int64_t begin_of(int64_t rank, Counts counts) {
  return sum_of(counts.first(static_cast<size_t>(rank)));
}

inline bool are_equal(Counts counts) {
  return std::ranges::all_of(counts, [&](int64_t count) { return count == counts.front(); });
}

inline std::vector<int64_t> equal_counts(int64_t ranks, int64_t count) {
  return std::vector<int64_t>(static_cast<size_t>(ranks), count);
}

}  // namespace levin::comm
