#pragma once
// How collectives cut elements: into chunks that one exchange carries, and into a share for each
// rank to reduce.

#include <algorithm>
#include <cstdint>

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

}  // namespace levin::comm
