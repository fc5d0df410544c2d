#include "levin/text/reading/json_cursor.h"

#include <array>
#include <charconv>
#include <cstring>

#include "levin/base/text/utf8.h"

namespace levin::text {
namespace {

enum class ByteKind : uint8_t { kPlain, kBeyondAscii, kQuote, kEscape, kControl };

constexpr std::array<ByteKind, 256> byte_kinds() {
  std::array<ByteKind, 256> kinds{};
  for (size_t byte = 0; byte < 0x20; ++byte) kinds[byte] = ByteKind::kControl;
  for (size_t byte = 0x80; byte < 0x100; ++byte) kinds[byte] = ByteKind::kBeyondAscii;
  kinds['"'] = ByteKind::kQuote;
  kinds['\\'] = ByteKind::kEscape;
  return kinds;
}
constexpr std::array<ByteKind, 256> kByteKinds = byte_kinds();

ByteKind byte_kind(char c) { return kByteKinds[static_cast<uint8_t>(c)]; }
/// Returns whether each of eight bytes is kPlain.
bool are_plain(const char* bytes) {
  uint64_t eight = 0;
  std::memcpy(&eight, bytes, 8);
  constexpr uint64_t kOnes = 0x0101010101010101U;
  constexpr uint64_t kTops = 0x8080808080808080U;
  const auto has_zero = [](uint64_t x) { return (x - kOnes) & ~x; };  // in the top bits
  const uint64_t found = eight | has_zero(eight ^ kOnes * '"') | has_zero(eight ^ kOnes * '\\') |
                         (eight - kOnes * 0x20);
  return (found & kTops) == 0;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool JsonCursor::text(std::string_view& text, TextMemory& memory) {
  if (!take('"')) return false;
  const char* const begin = at_;
  bool ascii = true;
  while (end_ - at_ >= 8 && are_plain(at_)) at_ += 8;
  for (;; ++at_) {
    if (at_ == end_) return false;
    const ByteKind kind = byte_kind(*at_);
    if (kind == ByteKind::kPlain) continue;
    if (kind == ByteKind::kQuote) break;
    if (kind == ByteKind::kEscape) return escaped_text(begin, text, memory);
    if (kind == ByteKind::kControl) return false;
    ascii = false;
  }
  text = {begin, static_cast<size_t>(at_ - begin)};
  ++at_;
  return ascii || utf8::invalid_byte(text) == std::string_view::npos;
}

/// Reads the text from its first escape on.
bool JsonCursor::escaped_text(const char* begin, std::string_view& text, TextMemory& memory) {
  bytes_.assign(begin, at_);
  while (true) {
    if (at_ == end_) return false;
    const char c = *at_++;
    const ByteKind kind = byte_kind(c);
    if (kind == ByteKind::kQuote) break;
    if (kind == ByteKind::kControl || (kind == ByteKind::kEscape && !escape(bytes_))) return false;
    if (kind != ByteKind::kEscape) bytes_ += c;
  }
  if (utf8::invalid_byte(bytes_) != std::string_view::npos) return false;
  text = memory.keep(bytes_);
  return true;
}

/// Reads the escape after a backslash.
bool JsonCursor::escape(std::string& bytes) {
  if (at_ == end_) return false;
  const char c = *at_++;
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
  if (const size_t letter = kLetters.find(c); letter != std::string_view::npos) {
    bytes += kMeant[letter];
    return true;
  }
  uint32_t code = 0;
  if (c != 'u' || !sixteen_bits(code)) return false;
  if (code >= 0xd800 && code < 0xe000) {  // the first half of one above U+FFFF
    uint32_t second = 0;
    if (code >= 0xdc00 || end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') return false;
    at_ += 2;
    if (!sixteen_bits(second) || second < 0xdc00 || second >= 0xe000) return false;
    code = 0x10000 + ((code - 0xd800) << 10 | (second - 0xdc00));
  }
  utf8::append(bytes, code);
  return true;
}

bool JsonCursor::sixteen_bits(uint32_t& number) {
  if (end_ - at_ < 4) return false;
  const auto [stopped, error] = std::from_chars(at_, at_ + 4, number, 16);
  if (error != std::errc() || stopped != at_ + 4) return false;
  at_ += 4;
  return true;
}

bool JsonCursor::whole(int64_t& number) {
  skip_space();
  const char* const first = at_;
  number = 0;
  while (at_ != end_ && is_digit(*at_)) {
    if (at_ - first == 18) return false;
    number = number * 10 + (*at_++ - '0');
  }
  return at_ != first && (*first != '0' || at_ - first == 1);
}

bool JsonCursor::digits(std::string_view& digits) {
  skip_space();
  const char* const first = at_;
  const auto skip_digits = [&] {
    const char* const begin = at_;
    while (at_ != end_ && is_digit(*at_)) ++at_;
    return at_ - begin;
  };
  const auto is = [&](char one, char other) {
    return at_ != end_ && (*at_ == one || *at_ == other);
  };
  if (is('-', '-')) ++at_;
  const bool zero = is('0', '0');
  const auto before = skip_digits();
  if (before == 0 || (zero && before > 1)) return false;
  if (is('.', '.')) {
    ++at_;
    if (skip_digits() == 0) return false;
  }
  if (is('e', 'E')) {
    ++at_;
    if (is('+', '-')) ++at_;
    if (skip_digits() == 0) return false;
  }
  digits = {first, static_cast<size_t>(at_ - first)};
  return true;
}

bool JsonCursor::take(std::string_view word) {
  skip_space();
  if (!std::string_view(at_, bytes_left()).starts_with(word)) return false;
  at_ += word.size();
  return true;
}

}  // namespace levin::text
