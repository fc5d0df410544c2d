#include "levin/rows/cache/packing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>

namespace levin::text::row {
namespace {

/// Longest first; those of one length in the order in which they came.
std::vector<int64_t> by_length(std::span<const int64_t> lengths, int64_t length) {
  std::vector<int64_t> places(static_cast<size_t>(length) + 2, 0);
  for (const int64_t each : lengths) ++places[static_cast<size_t>(length - each) + 1];
  std::partial_sum(places.begin(), places.end(), places.begin());
  std::vector<int64_t> order(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    order[static_cast<size_t>(places[static_cast<size_t>(length - lengths[i])]++)] =
        static_cast<int64_t>(i);
  }
  return order;
}

}  // namespace

PackedRows pack(std::span<const int64_t> lengths, int64_t length) {
  std::map<int64_t, std::queue<int64_t>> open;  // rows by the room that they have left
  std::vector<int64_t> row_of(lengths.size());
  std::vector<int64_t> sizes;  // documents of each row
  const std::vector<int64_t> order = by_length(lengths, length);
  for (const int64_t document : order) {
    const int64_t size = lengths[static_cast<size_t>(document)];
    int64_t row = std::ssize(sizes);
    int64_t room = length;
    if (const auto best = open.lower_bound(size); best != open.end()) {
      room = best->first;
      row = best->second.front();
      best->second.pop();
      if (best->second.empty()) open.erase(best);
      ++sizes[static_cast<size_t>(row)];
    } else {
      sizes.push_back(1);
    }
    row_of[static_cast<size_t>(document)] = row;
    if (room > size) open[room - size].push(row);
  }
  PackedRows packed{.offsets = {0}, .documents = std::vector<int64_t>(lengths.size())};
  std::inclusive_scan(sizes.begin(), sizes.end(), std::back_inserter(packed.offsets));
  std::vector<int64_t> next(packed.offsets);
  for (const int64_t document : order) {
    const auto row = static_cast<size_t>(row_of[static_cast<size_t>(document)]);
    packed.documents[static_cast<size_t>(next[row]++)] = document;
  }
  return packed;
}

}  // namespace levin::text::row
