#include "levin/graph/replay/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace levin::graph {
namespace {

int64_t aligned(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

struct Placed {
  int64_t begin;
  int64_t end;
  size_t need;
};

/// The lowest place between those, sorted by begin, that are needed at the same time.
int64_t lowest_gap(const std::vector<Placed>& placed, const std::vector<MemoryNeed>& needs,
                   const MemoryNeed& wanted) {
  int64_t place = 0;
  for (const Placed& other : placed) {
    const MemoryNeed& need = needs[other.need];
    if (need.last < wanted.first || wanted.last < need.first) continue;
    if (other.begin - place >= wanted.bytes) return place;
    place = std::max(place, other.end);
  }
  return place;
}

int64_t most_at_once(const std::vector<MemoryNeed>& needs) {
  std::map<size_t, int64_t> changes;
  for (const MemoryNeed& need : needs) {
    changes[need.first] += need.bytes;
    changes[need.last + 1] -= need.bytes;
  }
  int64_t now = 0, most = 0;
  for (const auto& [step, change] : changes) most = std::max(most, now += change);
  return most;
}

/// Lays the needs in this order, each at the lowest place that is free while it is needed.
MemoryPlan laid_out(const std::vector<MemoryNeed>& needs, const std::vector<size_t>& order) {
  MemoryPlan plan{.offsets = std::vector<int64_t>(needs.size(), 0)};
  std::vector<Placed> placed;
  for (const size_t i : order) {
    if (needs[i].bytes == 0) continue;
    const int64_t begin = lowest_gap(placed, needs, needs[i]);
    const Placed here{begin, begin + needs[i].bytes, i};
    placed.insert(std::ranges::upper_bound(placed, begin, {}, &Placed::begin), here);
    plan.offsets[i] = begin;
    plan.bytes = std::max(plan.bytes, here.end);
  }
  return plan;
}

}  // namespace

MemoryPlan plan_memory(const std::vector<MemoryNeed>& unaligned, int64_t alignment) {
  std::vector<MemoryNeed> needs = unaligned;
  for (MemoryNeed& need : needs) need.bytes = aligned(need.bytes, alignment);
  const int64_t needed = most_at_once(needs);
  std::vector<size_t> order(needs.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return needs[i].bytes; });
  MemoryPlan plan = laid_out(needs, order);
  const auto lifetime = [&](size_t i) {
    return static_cast<int64_t>(needs[i].last - needs[i].first);
  };
  // Long lives first suit steps whose large values come and go.
  for (const int64_t bytes_matter : {int64_t{0}, int64_t{1}}) {
    if (plan.bytes == needed) break;
    std::ranges::stable_sort(order, std::greater(), [&](size_t i) {
      return (lifetime(i) + 1) * (bytes_matter == 0 ? 1 : needs[i].bytes);
    });
    MemoryPlan other = laid_out(needs, order);
    if (other.bytes < plan.bytes) plan = std::move(other);
  }
  plan.needed = needed;
  return plan;
}

}  // namespace levin::graph
