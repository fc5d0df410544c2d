#pragma once
// Byte-level vocabularies write each byte as a letter: printable ones of Latin-1 unchanged, the
// others as letters from U+0100 on (GPT-2). Not for users.

#include <array>
#include <cstdint>

namespace levin::text {

constexpr bool is_printable_byte(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr std::array<uint16_t, 256> make_byte_letters() {
  std::array<uint16_t, 256> letters{};
  uint16_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    letters[byte] = is_printable_byte(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return letters;
}

inline constexpr std::array<uint16_t, 256> kByteLetters = make_byte_letters();

constexpr std::array<int16_t, 0x144> make_letter_bytes() {
  std::array<int16_t, 0x144> bytes{};
  bytes.fill(-1);
  for (int16_t byte = 0; byte < 256; ++byte) bytes[kByteLetters[static_cast<size_t>(byte)]] = byte;
  return bytes;
}

inline constexpr std::array<int16_t, 0x144> kLetterBytes = make_letter_bytes();

constexpr char32_t byte_letter(uint8_t byte) { return kByteLetters[byte]; }

/// -1 where the letter stands for no byte.
constexpr int letter_byte(char32_t c) { return c < kLetterBytes.size() ? kLetterBytes[c] : -1; }

}  // namespace levin::text
