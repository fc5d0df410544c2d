#pragma once
// UTF-8: code points out of bytes and back. Text is checked once, where it comes in (invalid_byte);
// what reads it afterwards relies on that.
//
//   for (size_t at = 0; at < text.size();) { const char32_t c = next(text, at); ... }

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin::text::utf8 {

/// Returns the place of the first byte that begins no well-formed code point; npos if there is
/// none.
LEVIN_API size_t invalid_byte(std::string_view text);

/// Throws Error "text.utf8" with that place.
LEVIN_API void check(std::string_view text);

/// Each ill-formed part becomes U+FFFD, as Rust and browsers do it.
LEVIN_API std::string lossy(std::string_view bytes);

LEVIN_API void append(std::string& text, char32_t c);

constexpr size_t size_of(char32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

/// Returns the length of the sequence that a byte begins, in well-formed text.
constexpr size_t length(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

constexpr bool is_inner(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) == 0x80; }

/// The code point at a place of well-formed text; the place moves behind it.
inline char32_t next(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint32_t first = byte(0);
  if (first < 0x80) {
    at += 1;
    return first;
  }
  if (first < 0xe0) {
    const char32_t c = (first & 0x1f) << 6 | (byte(1) & 0x3f);
    at += 2;
    return c;
  }
  if (first < 0xf0) {
    const char32_t c = (first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    at += 3;
    return c;
  }
  const char32_t c =
      (first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  at += 4;
  return c;
}

/// The place of the code point before `at`, which is above 0.
inline size_t before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && is_inner(text[at]));
  return at;
}

inline size_t count(std::string_view text) {
  size_t number = 0;
  for (const char byte : text) number += !is_inner(byte);
  return number;
}

}  // namespace levin::text::utf8
