#pragma once
// PlainJson: a JSON text as events, as nlohmann::json::sax_parse gives them, several times faster: a tokenizer.json is
// megabytes of short texts. What it does not take (an error, a number too large, a text that nests deep) it leaves to
// the library, which knows the words for it. Not for users.
//
//   if (!PlainJson(text, reader).read()) json::sax_parse(text, &another_reader);

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "levin/text/unicode/utf8.h"

namespace levin::text {

/// Handler has start_object, start_array, end_object, end_array, key and text (of a std::string_view that lives during
/// the call), whole (int64_t), number (double), flag and null; each is false where it wants no more.
template <class Handler>
class PlainJson {
 public:
  PlainJson(std::string_view text, Handler& handler) : text_(text), handler_(handler) {}

  /// Whether all of it was read; else some events have come, and the rest has not.
  bool read() {
    while (true) {
      skip_space();
      if (!begin_value()) return false;
      if (depth_ > 0 && just_opened_) continue;
      if (!end_values()) return false;
      if (depth_ == 0) break;
    }
    skip_space();
    return at_ == text_.size();
  }

 private:
  static constexpr size_t kDeepest = 64;

  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool take(char c) {
    if (now() != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  /// A value, or the beginning of an object or a list with the key of its first item.
  bool begin_value() {
    just_opened_ = false;
    switch (now()) {
      case '{':
        ++at_;
        if (depth_ == kDeepest || !handler_.start_object()) return false;
        is_object_[depth_++] = true;
        skip_space();
        if (take('}')) return close();
        just_opened_ = true;
        return key();
      case '[':
        ++at_;
        if (depth_ == kDeepest || !handler_.start_array()) return false;
        is_object_[depth_++] = false;
        skip_space();
        if (take(']')) return close();
        just_opened_ = true;
        return true;
      case '"': {
        const auto text = string();
        return text && handler_.text(*text);
      }
      case 't':
        return take("true") && handler_.flag(true);
      case 'f':
        return take("false") && handler_.flag(false);
      case 'n':
        return take("null") && handler_.null();
      default:
        return number();
    }
  }

  /// Behind a value: what ends with it, up to where the next one begins.
  bool end_values() {
    while (depth_ > 0) {
      skip_space();
      const bool is_object = is_object_[depth_ - 1];
      if (take(',')) {
        skip_space();
        return !is_object || key();
      }
      if (!take(is_object ? '}' : ']') || !close()) return false;
    }
    return true;
  }

  bool close() { return is_object_[--depth_] ? handler_.end_object() : handler_.end_array(); }

  bool key() {
    const auto text = string();
    if (!text || !handler_.key(*text)) return false;
    skip_space();
    if (!take(':')) return false;
    skip_space();
    return true;
  }

  /// What stands between quotes, as it is meant.
  std::optional<std::string_view> string() {
    if (!take('"')) return std::nullopt;
    const size_t begin = at_;
    uint8_t any = 0;
    while (at_ < text_.size()) {
      const auto byte = static_cast<uint8_t>(text_[at_]);
      if (byte == '"') {
        const std::string_view plain = text_.substr(begin, at_++ - begin);
        if (any >= 0x80 && utf8::invalid_byte(plain) != std::string_view::npos) return std::nullopt;
        return plain;
      }
      if (byte == '\\') return escaped(begin);
      if (byte < 0x20) return std::nullopt;
      any |= byte;
      ++at_;
    }
    return std::nullopt;
  }

  /// The same for one that has escapes.
  std::optional<std::string_view> escaped(size_t begin) {
    meant_.assign(text_.substr(begin, at_ - begin));
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') {
        if (utf8::invalid_byte(meant_) != std::string_view::npos) return std::nullopt;
        return meant_;
      }
      if (static_cast<uint8_t>(c) < 0x20) return std::nullopt;
      if (c != '\\') {
        meant_ += c;
        continue;
      }
      constexpr std::string_view kLetters = "\"\\/bfnrt";
      constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
      const char letter = now();
      ++at_;
      if (const size_t place = kLetters.find(letter); place != std::string_view::npos) {
        meant_ += kMeant[place];
        continue;
      }
      auto code = letter == 'u' ? hex() : std::nullopt;
      if (code && *code >= 0xd800 && *code < 0xdc00) {
        const auto low = take("\\u") ? hex() : std::nullopt;
        if (!low || *low < 0xdc00 || *low >= 0xe000) return std::nullopt;
        code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
      }
      if (!code || (*code >= 0xdc00 && *code < 0xe000)) return std::nullopt;
      utf8::append(meant_, static_cast<char32_t>(*code));
    }
    return std::nullopt;
  }

  std::optional<uint32_t> hex() {
    const std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
    uint32_t code = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < 4 || error != std::errc() || end != digits.data() + 4) return std::nullopt;
    at_ += 4;
    return code;
  }

  size_t skip_digits() {
    const size_t begin = at_;
    while (now() >= '0' && now() <= '9') ++at_;
    return at_ - begin;
  }

  bool number() {
    const size_t begin = at_;
    take('-');
    const bool zero = now() == '0';
    const size_t digits = skip_digits();
    if (digits == 0 || (zero && digits > 1)) return false;
    bool is_whole = true;
    if (take('.')) {
      is_whole = false;
      if (skip_digits() == 0) return false;
    }
    if (take('e') || take('E')) {
      is_whole = false;
      if (!take('-')) take('+');
      if (skip_digits() == 0) return false;
    }
    const char* const first = text_.data() + begin;
    const char* const last = text_.data() + at_;
    if (is_whole) {
      int64_t whole = 0;
      return std::from_chars(first, last, whole).ec == std::errc() && handler_.whole(whole);
    }
    double number = 0;
    return std::from_chars(first, last, number).ec == std::errc() && handler_.number(number);
  }

  std::string_view text_;
  Handler& handler_;
  size_t at_ = 0;
  size_t depth_ = 0;
  bool just_opened_ = false;
  std::array<bool, kDeepest> is_object_{};
  std::string meant_;
};

}  // namespace levin::text
