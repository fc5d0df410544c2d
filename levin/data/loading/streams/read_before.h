#pragma once
// ReadBefore: the parts of an epoch's shards that were read before the number of ranks changed. A
// StreamLoader that resumes inside such an epoch reads the rest; its lanes ask for the samples
// left.
//
//   ReadBefore before(merged.child("read_before"));
//   if (before.has(shard, sample)) ...                 // some rank has had it

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/state.h"
#include "levin/data/loader.h"

namespace levin::detail {

/// Returns whether each rank has shards of its own: if their number divides and nothing was read
/// before. Otherwise each rank reads all shards and keeps each world_size-th sample.
bool have_own_shards(int64_t num_shards, int64_t world_size, bool some_read_before);
/// Shards that a rank reads, by lane, without shuffling.
std::vector<std::vector<int64_t>> lanes_of_shards(int64_t num_shards, DataSlice slice,
                                                  bool own_shards, int64_t open_shards);
/// Brings a lane's shards into their order of that epoch.
void shuffle_lane(std::vector<int64_t>& shards, uint64_t seed, int64_t epoch, int64_t lane);

class ReadBefore {
 public:
  ReadBefore() = default;
  /// Throws Error "data.loader.state" for what is no such state of so many shards.
  ReadBefore(const State& state, int64_t num_shards);

  bool empty() const { return readings_.empty(); }
  bool has(int64_t shard, int64_t sample) const;
  /// Returns the sample of the shard from which on the state of a sample depends on its place by
  /// period() alone.
  int64_t settled_at(int64_t shard) const;
  int64_t period() const;
  State state_dict() const;

  /// Adds what ranks read that left these states (StreamLoader::state_dict), all of one reading.
  void add(const std::vector<const State*>& ranks);

 private:
  /// Sample i of shard s was read where it is below bounds[s * num_ranks + (s + i) % num_ranks].
  struct Reading {
    int64_t num_ranks = 1;
    std::vector<int64_t> bounds;
  };

  std::vector<Reading> readings_;
};

/// One state of a stream for any number of ranks, of those of all ranks that read it; that of rank 0
/// where they stand at an epoch's start, or are of no stream.
State merged_places(const std::vector<State>& ranks);

}  // namespace levin::detail
