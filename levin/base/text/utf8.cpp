#include "levin/base/text/utf8.h"

namespace levin::detail {

std::pair<size_t, char32_t> first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t size = byte(0) < 0x80   ? 1
                      : byte(0) < 0xc2 ? 0
                      : byte(0) < 0xe0 ? 2
                      : byte(0) < 0xf0 ? 3
                      : byte(0) < 0xf5 ? 4
                                       : 0;
  if (size == 0 || size > text.size()) return {0, 0};
  char32_t code = size == 1 ? byte(0) : byte(0) & (0xffU >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {0, 0};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  const bool is_short = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  const bool is_half = code >= 0xd800 && code < 0xe000;
  return is_short || is_half || code > 0x10ffff ? std::pair<size_t, char32_t>(0, 0)
                                                : std::pair(size, code);
}

std::optional<size_t> invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const bool is_ascii = static_cast<unsigned char>(text[at]) < 0x80;
    const size_t size = is_ascii ? 1 : first_character(text.substr(at)).first;
    if (size == 0) return at;
    at += size;
  }
  return std::nullopt;
}

}  // namespace levin::detail
