#include "levin/text/unicode/base64.h"

#include <array>
#include <cstdint>

namespace levin::text {
namespace {

constexpr std::array<int8_t, 256> make_digits() {
  std::array<int8_t, 256> digits{};
  digits.fill(-1);
  int8_t value = 0;
  for (char c = 'A'; c <= 'Z'; ++c) digits[static_cast<uint8_t>(c)] = value++;
  for (char c = 'a'; c <= 'z'; ++c) digits[static_cast<uint8_t>(c)] = value++;
  for (char c = '0'; c <= '9'; ++c) digits[static_cast<uint8_t>(c)] = value++;
  digits['+'] = value++;
  digits['/'] = value;
  return digits;
}

constexpr std::array<int8_t, 256> kDigits = make_digits();

}  // namespace

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int8_t digit = kDigits[static_cast<uint8_t>(c)];
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xff);
    }
  }
  return bytes;
}

}  // namespace levin::text
