#include "levin/comm/hierarchical/order.h"

#include <algorithm>

namespace levin::comm {
namespace {

/// Calls copy(ordered, data) for the parts of each rank.
template <class Copy>
void for_each_part(std::span<const int64_t> ranks, Elements ordered, Elements data, Counts counts,
                   const Copy& copy) {
  const std::vector<Elements> parts = cut(data, counts);
  const std::vector<Elements> places = cut(ordered, counts_of(ranks, counts));
  for (size_t i = 0; i < ranks.size(); ++i) copy(places[i], parts[static_cast<size_t>(ranks[i])]);
}

}  // namespace

std::vector<int64_t> counts_of(std::span<const int64_t> ranks, Counts counts) {
  std::vector<int64_t> some;
  for (const int64_t rank : ranks) some.push_back(counts[static_cast<size_t>(rank)]);
  return some;
}

std::vector<int64_t> counts_of_hosts(const HostLayout& layout, Counts counts) {
  std::vector<int64_t> all;
  for (const auto& host : layout.hosts) all.push_back(sum_of(counts_of(host, counts)));
  return all;
}

bool is_rank_order(std::span<const int64_t> ranks) { return std::ranges::is_sorted(ranks); }

Elements in_order_of(std::span<const int64_t> ranks, Elements data, Counts counts,
                     const std::function<Elements(int64_t count)>& allocate) {
  if (is_rank_order(ranks)) return data;
  const Elements ordered = allocate(data.count);
  for_each_part(ranks, ordered, data, counts, [](Elements place, Elements part) {
    copy_bytes(place.data, part.data, part.bytes());
  });
  return ordered;
}

void put_in_rank_order(std::span<const int64_t> ranks, Elements ordered, Elements data,
                       Counts counts) {
  for_each_part(ranks, ordered, data, counts, [](Elements place, Elements part) {
    if (part.data != place.data) copy_bytes(part.data, place.data, part.bytes());
  });
}

}  // namespace levin::comm
