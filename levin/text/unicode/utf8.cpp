#include "levin/text/unicode/utf8.h"

#include <cstring>

#include "levin/base/check.h"

namespace levin::text::utf8 {
namespace {

/// The number of bytes that are the beginning of a well-formed sequence, and whether all of it is
/// there.
struct Piece {
  size_t size;
  bool whole;
};

Piece piece_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> int {
    return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : -1;
  };
  const int first = byte(0);
  if (first < 0x80) return {1, true};
  // The second byte's range keeps out overlong forms, surrogates and what is above U+10FFFF.
  int low = 0x80;
  int high = 0xbf;
  size_t wanted = 0;
  if (first >= 0xc2 && first <= 0xdf) {
    wanted = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    wanted = 3;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    wanted = 4;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  } else {
    return {1, false};
  }
  for (size_t i = 1; i < wanted; ++i) {
    if (byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xbf;
  }
  return {wanted, true};
}

}  // namespace

size_t invalid_byte(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (at + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080U) == 0) {
        at += 8;
        continue;
      }
    }
    const Piece piece = piece_at(text, at);
    if (!piece.whole) return at;
    at += piece.size;
  }
  return std::string_view::npos;
}

void check(std::string_view text) {
  const size_t at = invalid_byte(text);
  LEVIN_CHECK(at == std::string_view::npos, "text.utf8",
              "byte {} of the text (0x{:02x}) is not UTF-8; convert the text first", at,
              static_cast<uint8_t>(text[at]));
}

std::string lossy(std::string_view bytes) {
  if (invalid_byte(bytes) == std::string_view::npos) return std::string(bytes);
  std::string text;
  text.reserve(bytes.size() + 8);
  for (size_t at = 0; at < bytes.size();) {
    const Piece piece = piece_at(bytes, at);
    if (piece.whole) {
      text += bytes.substr(at, piece.size);
    } else {
      text += "\xef\xbf\xbd";
    }
    at += piece.size;
  }
  return text;
}

void append(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    const char bytes[] = {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
    text.append(bytes, 2);
  } else if (c < 0x10000) {
    const char bytes[] = {static_cast<char>(0xe0 | c >> 12),
                          static_cast<char>(0x80 | (c >> 6 & 0x3f)),
                          static_cast<char>(0x80 | (c & 0x3f))};
    text.append(bytes, 3);
  } else {
    const char bytes[] = {
        static_cast<char>(0xf0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3f)),
        static_cast<char>(0x80 | (c >> 6 & 0x3f)), static_cast<char>(0x80 | (c & 0x3f))};
    text.append(bytes, 4);
  }
}

}  // namespace levin::text::utf8
