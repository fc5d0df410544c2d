#include "levin/text/pre_tokenizers/splits.h"

#include <algorithm>

namespace levin::text {
namespace {

/// Goes over the parts and joins one with that before it where `joins` says so.
template <class Joins>
void join(std::vector<Part>& parts, const Joins& joins) {
  size_t count = 0;  // parts that stay
  bool previous = false;
  for (const Part part : parts) {
    if (joins(part.is_match, previous) && count > 0) {
      Bytes& last = parts[count - 1].bytes;
      last.begin = std::min(last.begin, part.bytes.begin);
      last.end = std::max(last.end, part.bytes.end);
    } else {
      parts[count++] = part;
    }
    previous = part.is_match;
  }
  parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(count), parts.end());
}

}  // namespace

SplitBehaviour read_behaviour(const Component& component) {
  const std::string name = component.text();
  if (name == "Removed") return SplitBehaviour::kRemoved;
  if (name == "Isolated") return SplitBehaviour::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehaviour::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehaviour::kMergedWithNext;
  if (name == "Contiguous") return SplitBehaviour::kContiguous;
  component.fail("is not one of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

void put_pieces(std::vector<Part>& parts, SplitBehaviour behaviour, uint32_t base,
                std::vector<Piece>& pieces) {
  const auto starts_match = [](bool is_match, bool previous) { return is_match && !previous; };
  if (behaviour == SplitBehaviour::kContiguous) {
    join(parts, [](bool is_match, bool previous) { return is_match == previous; });
  } else if (behaviour == SplitBehaviour::kMergedWithPrevious) {
    join(parts, starts_match);
  } else if (behaviour == SplitBehaviour::kMergedWithNext) {
    std::ranges::reverse(parts);
    join(parts, starts_match);
    std::ranges::reverse(parts);
  }
  for (const Part& part : parts) {
    if (behaviour == SplitBehaviour::kRemoved && part.is_match) continue;
    if (part.bytes.size() > 0) pieces.push_back({base + part.bytes.begin, base + part.bytes.end});
  }
}

}  // namespace levin::text
