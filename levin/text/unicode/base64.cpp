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
  // Four digits are three bytes; the last digits are one or two.
  std::string bytes(text.size() * 3 / 4, '\0');
  const auto digit = [&](size_t at) -> int32_t {
    return at < text.size() ? kDigits[static_cast<uint8_t>(text[at])] : 0;
  };
  char* out = bytes.data();
  char* const end = out + bytes.size();
  for (size_t at = 0; at < text.size(); at += 4) {
    const int32_t a = digit(at), b = digit(at + 1), c = digit(at + 2), d = digit(at + 3);
    if ((a | b | c | d) < 0) return std::nullopt;
    const auto bits = static_cast<uint32_t>(a << 18 | b << 12 | c << 6 | d);
    for (int shift = 16; shift >= 0 && out != end; shift -= 8) {
      *out++ = static_cast<char>(bits >> shift & 0xff);
    }
  }
  return bytes;
}

}  // namespace levin::text
