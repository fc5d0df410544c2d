#include "levin/comm/messages/transport.h"

#include <array>
#include <vector>

namespace levin::comm {

void Transport::all_gather(const Announcement& operation, std::byte* data,
                           std::span<const int64_t> counts, int tag) {
  std::vector<Elements> parts;
  for (const int64_t count : counts) {
    parts.push_back({data, at::kByte, count});
    data += count;
  }
  std::vector<Letter> receives, sends;
  for (int64_t i = 1; i < size(); ++i) {  // to the next rank first: not all to one at a time
    const int64_t to = (rank() + i) % size(), from = (rank() - i + size()) % size();
    sends.push_back({to, parts[static_cast<size_t>(rank())]});
    receives.push_back({from, parts[static_cast<size_t>(from)]});
  }
  exchange(operation, receives, sends, tag);
}

// A rank's number counts from the root; it hears from the one without its lowest bit, and tells
// those with one bit more below that.
void Transport::broadcast(const Announcement& operation, Elements data, int64_t root, int tag) {
  const auto rank_of = [&](int64_t number) { return (number + root) % size(); };
  const int64_t number = (rank() - root + size()) % size();
  int64_t bit = 1;
  while (bit < size() && (number & bit) == 0) bit <<= 1;
  if (number != 0) {
    const std::array<Letter, 1> from = {{{rank_of(number - bit), data}}};
    exchange(operation, from, {}, tag);
  }
  std::vector<Letter> to;
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (number + bit < size()) to.push_back({rank_of(number + bit), data});
  }
  exchange(operation, {}, to, tag);
}

}  // namespace levin::comm
