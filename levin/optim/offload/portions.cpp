#include "levin/optim/offload/portions.h"

#include <algorithm>
#include <limits>

namespace levin::optim {
namespace {

/// Kernels update a tensor vector by vector and the last elements one by one, so that the pieces end at multiples of
/// every vector: a piece's last elements are those of the parameter.
constexpr int64_t kCutElements = 4096;
constexpr int64_t kSlotAlignment = 64;

int64_t element_bytes(const PortionItem& item) {
  int64_t bytes = 0;
  for (const SlotPlace& slot : *item.slots) {
    bytes += static_cast<int64_t>(c10::elementSize(slot.type));
  }
  return bytes;
}

/// Adds bytes of the file to the last range of that slot, if they follow on it.
PortionPiece::Memory add_range(Portion& portion, std::vector<size_t>& last_ranges, size_t slot,
                               int64_t begin, int64_t end) {
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  if (last_ranges.size() <= slot) last_ranges.resize(slot + 1, kNone);
  size_t& last = last_ranges[slot];
  const bool follows = last != kNone && begin >= portion.ranges[last].end &&
                       begin - portion.ranges[last].end < kSlotAlignment;
  if (!follows) {
    last = portion.ranges.size();
    portion.ranges.push_back({begin, begin});
  }
  files::ByteRange& range = portion.ranges[last];
  portion.bytes += end - range.end;
  range.end = end;
  return {last, begin - range.begin};
}

}  // namespace

std::vector<Portion> cut_portions(const std::vector<PortionItem>& items, int64_t portion_bytes) {
  std::vector<Portion> portions(1);
  std::vector<size_t> last_ranges;
  const auto begin_portion = [&] {
    if (portions.back().pieces.empty()) return;
    portions.emplace_back();
    last_ranges.clear();
  };
  for (size_t number = 0; number < items.size(); ++number) {
    const PortionItem& item = items[number];
    const int64_t width = element_bytes(item);
    int64_t begin = 0;
    do {
      int64_t count = item.numel - begin;
      int64_t left = portion_bytes - portions.back().bytes;
      if (item.is_cut && width > 0 && count * width > left) {
        if (left < std::min(portion_bytes / 2, count * width)) {
          begin_portion();
          left = portion_bytes - portions.back().bytes;
        }
        count = std::min(count, std::max(left / width / kCutElements, int64_t{1}) * kCutElements);
      } else if (!item.is_cut) {
        int64_t bytes = 0;
        for (const SlotPlace& slot : *item.slots) bytes += slot.bytes();
        if (bytes > left) begin_portion();
      }
      PortionPiece piece{.item = number, .begin = begin, .count = count};
      for (size_t slot = 0; slot < item.slots->size(); ++slot) {
        const SlotPlace& place = (*item.slots)[slot];
        const auto element = static_cast<int64_t>(c10::elementSize(place.type));
        const int64_t from = place.begin + (item.is_cut ? begin * element : 0);
        const int64_t bytes = item.is_cut ? count * element : place.bytes();
        piece.slots.push_back(add_range(portions.back(), last_ranges, slot, from, from + bytes));
      }
      portions.back().pieces.push_back(std::move(piece));
      begin += count;
    } while (begin < item.numel);
  }
  if (portions.back().pieces.empty()) portions.pop_back();
  return portions;
}

}  // namespace levin::optim
