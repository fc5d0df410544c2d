#pragma once
// A line of text, read from left to right. For parse.cpp.

#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

namespace levin::graph {

class Line {
 public:
  Line(std::string_view text, int64_t number) : rest_(text), text_(text), number_(number) {}

  /// Throws Error "graph.parse".
  [[noreturn]] void fail(std::string_view wanted) const;
  void skip_spaces() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }
  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }
  bool sees(std::string_view token) {
    skip_spaces();
    return rest_.starts_with(token);
  }
  bool accept(std::string_view token) {
    if (!sees(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("'" + std::string(token) + "'");
  }
  /// Letters, digits and what else names are made of.
  std::string_view word(std::string_view wanted) {
    skip_spaces();
    size_t length = 0;
    while (length < rest_.size() && is_of_word(rest_[length])) ++length;
    if (length == 0) fail(wanted);
    const std::string_view found = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return found;
  }
  std::string string() {
    expect("\"");
    std::string found;
    for (; !rest_.empty() && rest_.front() != '"'; rest_.remove_prefix(1)) {
      if (rest_.front() == '\\') rest_.remove_prefix(1);
      if (rest_.empty()) break;  // a line that ends with a backslash
      found += rest_.front();
    }
    expect("\"");
    return found;
  }

 private:
  static bool is_of_word(char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' ||
           letter == '.' || letter == ':' || letter == '-' || letter == '+';
  }

  std::string_view rest_;
  std::string_view text_;
  int64_t number_;
};

/// Names the reason why a text may not ask for an operator; empty if it may. Refused are operators
/// that open files, operators that trust sizes, strides or indices, and LibTorch's own operators
/// beside ATen's, since some of these do so. An operator that the program itself has registered is
/// its own responsibility.
std::string_view reason_to_refuse(std::string_view name);

/// A parameter by which an operator can be told to look at no index.
bool is_unchecked_flag(std::string_view parameter);

}  // namespace levin::graph
