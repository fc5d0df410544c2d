#pragma once
// SetParser: parses the parts of an expression that stand for code points: characters, escapes,
// properties and classes. Not for users; the parser of expressions derives from it.
//
//   Ranges set = char_class();   // behind the [

#include <string_view>

#include "levin/text/patterns/code_set.h"

namespace levin::text {

/// Returns the set of a name in \p{...} or [[:...:]], in lower case without blanks; empty if there
/// is none.
Ranges named_set(std::string_view name);

/// The code points of \w and [:word:] within brackets: Oniguruma leaves six of them out there.
Ranges word_set_in_brackets();

class SetParser {
 public:
  explicit SetParser(std::string_view text) : text_(text) {}

 protected:
  static constexpr int kMostDepth = 100;

  [[noreturn]] void fail(std::string_view what) const;

  bool done() const { return at_ >= text_.size(); }
  bool sees(std::string_view next) const { return text_.substr(at_).starts_with(next); }
  bool take(std::string_view next) {
    if (!sees(next)) return false;
    at_ += next.size();
    return true;
  }
  char32_t take_code_point();
  static Ranges one(char32_t c) { return {{c, c + 1}}; }

  /// \s, \p{...} and the like, behind the \.
  bool take_class_escape(Ranges& set, bool in_brackets = false);
  /// \n, \x41 and the like, behind the \; within brackets \101 too, which is a group's number elsewhere.
  char32_t take_character_escape(bool in_brackets = false);
  /// Parses a class from behind its [.
  Ranges char_class();

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;  // depth of groups and classes
  bool ignores_case_ = false;

 private:
  Ranges class_item();
  Ranges property(bool in_brackets);
  char32_t hex(int most, bool braced);
  char32_t octal(int most);
};

}  // namespace levin::text
