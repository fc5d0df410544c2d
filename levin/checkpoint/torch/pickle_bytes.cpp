#include <algorithm>
#include <bit>

#include "levin/base/check.h"
#include "levin/checkpoint/torch/pickle_bytes_impl.h"

namespace levin::detail {

void PickleBytes::fail(std::string_view what) const {
  LEVIN_FAIL("checkpoint.torch", "{} holds a pickle that levin cannot read: {} at byte {}", source_,
             what, at_);
}

std::string_view PickleBytes::line() {
  const auto rest = bytes_.subspan(at_);
  const auto end = std::ranges::find(rest, std::byte{'\n'});
  if (end == rest.end()) fail("it ends too early");
  const std::string_view text = letters(static_cast<uint64_t>(end - rest.begin()));
  take(1);
  return text;
}

int64_t PickleBytes::long_integer() {
  const auto taken = take(number<uint8_t>());
  if (taken.size() > sizeof(int64_t)) fail("a number of more than 64 bits");
  uint64_t value = 0;
  for (size_t i = 0; i < taken.size(); ++i) value |= std::to_integer<uint64_t>(taken[i]) << 8 * i;
  const bool is_negative = !taken.empty() && (taken.back() & std::byte{0x80}) != std::byte{0};
  if (is_negative && taken.size() < sizeof value) value |= ~uint64_t{0} << 8 * taken.size();
  return static_cast<int64_t>(value);
}

double PickleBytes::big_endian() {
  uint64_t bits = 0;
  for (const std::byte byte : take(sizeof bits)) bits = bits << 8 | std::to_integer<uint64_t>(byte);
  return std::bit_cast<double>(bits);
}

}  // namespace levin::detail
