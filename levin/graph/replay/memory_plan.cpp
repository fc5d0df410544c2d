#include "levin/graph/replay/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

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

}  // namespace

MemoryPlan plan_memory(const std::vector<MemoryNeed>& unaligned, int64_t alignment) {
  std::vector<MemoryNeed> needs = unaligned;
  for (MemoryNeed& need : needs) need.bytes = aligned(need.bytes, alignment);
  std::vector<size_t> order(needs.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return needs[i].bytes; });
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
  plan.needed = most_at_once(needs);
  return plan;
}

}  // namespace levin::graph
