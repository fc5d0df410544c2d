#pragma once
// cut_unit: where a unit, parameters one behind the other, is cut into a contiguous run for each
// rank. Arithmetic that needs no process.

#include <cstdint>
#include <span>
#include <vector>

#include "levin/base/export.h"

namespace levin::fsdp {

/// A parameter's place in its unit.
struct Extent {
  int64_t begin = 0;      ///< in elements of the unit
  int64_t num_rows = 0;   ///< sizes of dim 0
  int64_t row_numel = 0;  ///< elements of a row
  int64_t end() const { return begin + num_rows * row_numel; }
};

enum class CutAt { kRows, kParameters };

/// One behind the other, each beginning at a multiple of so many elements.
LEVIN_API std::vector<Extent> extents_of(std::span<const std::vector<int64_t>> sizes,
                                         int64_t alignment);

/// Elements of each rank's run, as even as borders of rows (or of parameters) allow. Gaps between
/// parameters belong to the run before them. They add up to the end of the last parameter.
LEVIN_API std::vector<int64_t> cut_unit(std::span<const Extent> extents, int64_t num_ranks,
                                        CutAt at);

/// The same from the other side: elements of each rank's run where of each parameter each rank has so
/// many rows, which are those of one cut.
LEVIN_API std::vector<int64_t> runs_of_rows(std::span<const Extent> extents,
                                            std::span<const std::vector<int64_t>> rows_of_ranks);

/// Returns how many rows of a parameter are in each of these runs.
LEVIN_API std::vector<int64_t> rows_in_runs(const Extent& extent, std::span<const int64_t> runs);

}  // namespace levin::fsdp
