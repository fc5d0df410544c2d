#pragma once
// How many calls of a compiled function were replayed.

#include <cstdint>

#include "levin/graph/compile/compiled.h"

namespace levin::test {

/// With the checks in a replay's place, as the 1st, 2nd, 4th, ... and an epoch's first: these count
/// where not most calls are such.
inline int64_t num_replayed(const graph::CompiledReport& report) {
  return report.replayed + (report.checked < 2 * report.replayed ? report.checked : 0);
}

}  // namespace levin::test
