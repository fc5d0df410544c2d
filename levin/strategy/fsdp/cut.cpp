#include "levin/strategy/fsdp/cut.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>

namespace levin::fsdp {
namespace {

/// Returns the border nearest to an element at which a run may end.
int64_t nearest_border(std::span<const Extent> extents, int64_t element, CutAt at) {
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    const int64_t next = i + 1 < extents.size() ? extents[i + 1].begin : extent.end();
    if (element >= next) continue;
    if (element <= extent.begin) return extent.begin;
    if (at == CutAt::kParameters || element >= extent.end()) {
      return element - extent.begin < next - element ? extent.begin : next;
    }
    const int64_t rows = (element - extent.begin + extent.row_numel / 2) / extent.row_numel;
    return rows == extent.num_rows ? next : extent.begin + rows * extent.row_numel;
  }
  return extents.empty() ? 0 : extents.back().end();
}

}  // namespace

std::vector<Extent> extents_of(std::span<const std::vector<int64_t>> sizes, int64_t alignment) {
  std::vector<Extent> extents;
  int64_t begin = 0;
  for (const std::vector<int64_t>& each : sizes) {
    const int64_t row =
        std::accumulate(each.begin() + 1, each.end(), int64_t{1}, std::multiplies());
    extents.push_back({begin, each.front(), row});
    begin = (extents.back().end() + alignment - 1) / alignment * alignment;
  }
  return extents;
}

std::vector<int64_t> cut_unit(std::span<const Extent> extents, int64_t num_ranks, CutAt at) {
  const int64_t total = extents.empty() ? 0 : extents.back().end();
  std::vector<int64_t> runs;
  int64_t begin = 0;
  for (int64_t rank = 1; rank <= num_ranks; ++rank) {
    const int64_t wanted = total / num_ranks * rank + total % num_ranks * rank / num_ranks;
    const int64_t end =
        rank == num_ranks ? total : std::max(begin, nearest_border(extents, wanted, at));
    runs.push_back(end - begin);
    begin = end;
  }
  return runs;
}

std::vector<int64_t> runs_of_rows(std::span<const Extent> extents,
                                  std::span<const std::vector<int64_t>> rows_of_ranks) {
  const size_t num_ranks = rows_of_ranks.front().size();
  std::vector<int64_t> begins;
  std::vector<int64_t> rows_before(extents.size(), 0);
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    size_t i = 0;
    while (i < extents.size() && rows_before[i] == extents[i].num_rows) ++i;
    begins.push_back(i == extents.size()
                         ? extents.back().end()
                         : extents[i].begin + rows_before[i] * extents[i].row_numel);
    for (size_t each = 0; each < extents.size(); ++each) {
      rows_before[each] += rows_of_ranks[each][rank];
    }
  }
  begins.push_back(extents.back().end());
  std::vector<int64_t> runs;
  for (size_t rank = 0; rank < num_ranks; ++rank) runs.push_back(begins[rank + 1] - begins[rank]);
  return runs;
}

std::vector<int64_t> rows_in_runs(const Extent& extent, std::span<const int64_t> runs) {
  std::vector<int64_t> rows;
  int64_t begin = 0;
  for (const int64_t run : runs) {
    const int64_t from = std::clamp(begin, extent.begin, extent.end());
    const int64_t to = std::clamp(begin + run, extent.begin, extent.end());
    rows.push_back(extent.row_numel == 0 ? 0 : (to - from) / extent.row_numel);
    begin += run;
  }
  return rows;
}

}  // namespace levin::fsdp
