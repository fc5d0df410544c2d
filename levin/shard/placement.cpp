#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ostream>

#include "levin/shard/layout.h"

namespace levin::shard {
namespace {

constexpr size_t kMostWrittenOut = 4;

std::string cuts_text(const std::vector<int64_t>& cuts) {
  std::string text;
  for (size_t i = 0; i < cuts.size();) {
    size_t end = i;
    while (end < cuts.size() && cuts[end] == cuts[i]) ++end;
    if (end - i > kMostWrittenOut) {
      text += fmt::format(" {} x{}", cuts[i], end - i);
      i = end;
    }
    for (; i < end; ++i) text += fmt::format(" {}", cuts[i]);
  }
  return text;
}

}  // namespace

std::vector<int64_t> chunk_cuts(int64_t length, int64_t parts) {
  const int64_t longest = (length + parts - 1) / parts;
  std::vector<int64_t> cuts;
  for (int64_t part = 0; part < parts; ++part) {
    cuts.push_back(std::clamp<int64_t>(length - part * longest, 0, longest));
  }
  return cuts;
}

std::string to_text(ReduceOp op) {
  constexpr std::array kNames = {"sum", "mean", "min", "max", "product"};
  return kNames[static_cast<size_t>(op)];
}

std::string to_text(const Placement& placement) {
  if (const auto* partial = std::get_if<Partial>(&placement)) {
    return fmt::format("Partial({})", to_text(partial->op));
  }
  if (const auto* shard = std::get_if<Shard>(&placement)) {
    return fmt::format("Shard({}{}{})", shard->dim, shard->cuts.empty() ? "" : ":",
                       cuts_text(shard->cuts));
  }
  return "Replicate";
}

std::ostream& operator<<(std::ostream& out, const Placement& placement) {
  return out << to_text(placement);
}

}  // namespace levin::shard
