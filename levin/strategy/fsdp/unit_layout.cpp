#include "levin/strategy/fsdp/unit_layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace levin::fsdp {

UnitLayout::UnitLayout(std::span<const std::vector<int64_t>> sizes, int64_t alignment,
                       int64_t num_ranks, CutAt at) {
  for (const std::vector<int64_t>& each : sizes) {
    put(each.front(), std::accumulate(each.begin() + 1, each.end(), int64_t{1}, std::multiplies()),
        alignment);
  }
  int64_t begin = 0;
  for (int64_t rank = 1; rank <= num_ranks; ++rank) {
    const int64_t wanted = numel_ / num_ranks * rank + numel_ % num_ranks * rank / num_ranks;
    const int64_t end = rank == num_ranks ? numel_ : std::max(begin, nearest_border(wanted, at));
    runs_.push_back(end - begin);
    begin = end;
  }
  for (Place& place : places_) place.rows = rows_in_runs(place);
}

UnitLayout UnitLayout::only(std::span<const size_t> parameters, int64_t alignment) const {
  UnitLayout part;
  for (const size_t parameter : parameters) {
    const Place& place = places_[parameter];
    part.put(place.num_rows, place.row_numel, alignment);
    part.places_.back().rows = place.rows;
  }
  part.runs_.assign(runs_.size(), 0);
  if (!part.places_.empty()) part.runs_ = part.runs_of_rows();
  return part;
}

void UnitLayout::put(int64_t num_rows, int64_t row_numel, int64_t alignment) {
  const int64_t offset = (numel_ + alignment - 1) / alignment * alignment;
  places_.push_back({offset, num_rows, row_numel});
  numel_ = offset + num_rows * row_numel;
}

int64_t UnitLayout::first_row(size_t parameter, int64_t rank) const {
  const auto begin = rows(parameter).begin();
  return std::accumulate(begin, begin + rank, int64_t{0});
}

int64_t UnitLayout::run_begin(int64_t rank) const {
  return std::accumulate(runs_.begin(), runs_.begin() + rank, int64_t{0});
}

/// Where the next parameter begins.
int64_t UnitLayout::end_of(size_t parameter) const {
  return parameter + 1 < places_.size() ? places_[parameter + 1].offset : numel_;
}

/// Returns the border nearest to an element at which a run may end.
int64_t UnitLayout::nearest_border(int64_t element, CutAt at) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    const int64_t next = end_of(i), end = place.offset + numel(i);
    if (element >= next) continue;
    if (element <= place.offset) return place.offset;
    if (at == CutAt::kParameters || element >= end) {
      return element - place.offset < next - element ? place.offset : next;
    }
    const int64_t rows = (element - place.offset + place.row_numel / 2) / place.row_numel;
    return rows == place.num_rows ? next : place.offset + rows * place.row_numel;
  }
  return numel_;
}

std::vector<int64_t> UnitLayout::rows_in_runs(const Place& place) const {
  const int64_t place_end = place.offset + place.num_rows * place.row_numel;
  std::vector<int64_t> rows;
  int64_t begin = 0;
  for (const int64_t run : runs_) {
    const int64_t from = std::clamp(begin, place.offset, place_end);
    const int64_t to = std::clamp(begin + run, place.offset, place_end);
    rows.push_back(place.row_numel == 0 ? 0 : (to - from) / place.row_numel);
    begin += run;
  }
  return rows;
}

/// The runs whose rows the places have. A run begins with the first row that no earlier rank has.
std::vector<int64_t> UnitLayout::runs_of_rows() const {
  const size_t num_ranks = places_.front().rows.size();
  std::vector<int64_t> begins;
  std::vector<int64_t> rows_before(places_.size(), 0);
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    size_t i = 0;
    while (i < places_.size() && rows_before[i] == places_[i].num_rows) ++i;
    begins.push_back(
        i == places_.size() ? numel_ : places_[i].offset + rows_before[i] * places_[i].row_numel);
    for (size_t each = 0; each < places_.size(); ++each) {
      rows_before[each] += places_[each].rows[rank];
    }
  }
  begins.push_back(numel_);
  std::vector<int64_t> runs;
  for (size_t rank = 0; rank < num_ranks; ++rank) runs.push_back(begins[rank + 1] - begins[rank]);
  return runs;
}

}  // namespace levin::fsdp
