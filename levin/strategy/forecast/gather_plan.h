#pragma once
// GatherPlan: which units a sharded step gathers, when, and how much memory they take. The
// arithmetic of UnitCache (fsdp/gather/unit_cache.h) in a step that is like the one before.
// Not for users.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "levin/base/export.h"

namespace levin::forecast {

/// Parameters of a unit that are gathered in one dtype.
struct Image {
  size_t unit = 0;
  int64_t bytes = 0;
  bool stays = false;  ///< kept beside the limit once it was gathered
  int64_t near = 1;    ///< neighbouring ranks that keep parts after forward; 1: none do
};

struct Gather {
  size_t image = 0;
  size_t started = 0;    ///< the operator before which it starts
  size_t needed = 0;     ///< the operator that reads it first
  bool is_near = false;  ///< from the parts of neighbouring ranks
};

/// The gathered units and buffers that a step leaves to the next one.
struct GatherState {
  std::vector<int64_t> free;          ///< bytes of free buffers
  std::vector<size_t> parts;          ///< images that have memory for parts
  std::vector<size_t> forward_order;  ///< images as forward gathered them: prefetched so next time
};

struct GatherPlan {
  std::vector<Gather> gathers;  ///< in the order in which they start
  int64_t most_bytes = 0;       ///< of gathered units, free buffers and parts
  GatherState left;
};

/// reads: by operator, the images that it reads. backward: the first operator of backward.
/// gathered_bytes: as of UnitCache: 0 for three units, -1 for no limit. before: what the step before
/// has left.
LEVIN_API GatherPlan plan_gathers(const std::vector<Image>& images,
                                  const std::vector<std::vector<size_t>>& reads, size_t backward,
                                  int64_t gathered_bytes, GatherState before = {});

}  // namespace levin::forecast
