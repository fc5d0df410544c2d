#pragma once
// JsonCursor: a walk over JSON whose shape is known, one value after the other. It says no more than whether the
// text is what was asked for: who wants to know why not asks a parser. Not for users.
//
//   JsonCursor at(R"({"a": 1})");
//   at.take('{') && at.text(key, memory) && at.take(':') && at.whole(number) && at.take('}') && at.is_end();

#include <cstdint>
#include <string>
#include <string_view>

#include "levin/text/reading/model_data.h"

namespace levin::text {

/// Once something returned false the cursor stands anywhere.
class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  /// A mark of JSON, and the white space before it.
  bool take(char mark) {
    skip_space();
    if (at_ == end_ || *at_ != mark) return false;
    ++at_;
    return true;
  }
  /// true, false, null.
  bool take(std::string_view word);
  /// The first byte of what comes next; 0 at the end.
  char peek() {
    skip_space();
    return at_ == end_ ? '\0' : *at_;
  }
  bool is_end() { return peek() == '\0' && at_ == end_; }

  /// A text in quotes. One without escapes is a view of the file's own, another lies in `memory`.
  bool text(std::string_view& text, TextMemory& memory);
  /// Reads an integer from 0 on, below 10^18. Here and below, the caller checks the character that
  /// follows.
  bool whole(int64_t& number);
  /// The bytes of any number.
  bool digits(std::string_view& digits);

  size_t bytes_left() const { return static_cast<size_t>(end_ - at_); }

 private:
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  bool escaped_text(const char* begin, std::string_view& text, TextMemory& memory);
  bool escape(std::string& bytes);
  bool sixteen_bits(uint32_t& number);

  const char* at_;
  const char* end_;
  std::string bytes_;  // bytes of a text with escapes
};

}  // namespace levin::text
