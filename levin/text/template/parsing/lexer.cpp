#include "levin/text/template/parsing/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/text/template/parsing/literals.h"
#include "levin/text/template/values/python_text.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text::jinja {
namespace {

using Kind = Lexeme::Kind;

/// Lines end in "\n", and the last one does not.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      text += '\n';
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), text_(source_) {}

  std::vector<Lexeme> lex() {
    while (at_ < text_.size()) root();
    add(Kind::kEnd, "");
    return std::move(lexemes_);
  }

 private:
  struct Opening {
    size_t place = std::string_view::npos;
    char kind = 0;  // '{', '%' or '#', or 'r' for a raw block
    char sign = 0;  // '-', '+' or none
    size_t end = 0;
  };

  /// Reads the data before the next opening, then what it opens.
  void root() {
    const Opening opening = next_opening();
    if (opening.place == std::string_view::npos) {
      put_data(text_.substr(at_));
      at_ = text_.size();
      return;
    }
    put_data(stripped(text_.substr(at_, opening.place - at_), opening.sign, opening.kind != '{'));
    count_lines(at_, opening.place);
    const size_t begin = opening.place;
    at_ = opening.end;
    count_lines(begin, at_);
    line_starting_ = text_[at_ - 1] == '\n';
    if (opening.kind == '#') {
      skip_comment();
    } else if (opening.kind == 'r') {
      raw();
    } else {
      tokens(opening.kind == '{');
    }
  }

  Opening next_opening() const {
    for (size_t at = at_; at + 1 < text_.size(); ++at) {
      if (text_[at] != '{') continue;
      const char kind = text_[at + 1];
      if (kind != '{' && kind != '%' && kind != '#') continue;
      Opening opening{at, kind, 0, at + 2};
      if (opening.end < text_.size() && (text_[opening.end] == '-' || text_[opening.end] == '+')) {
        opening.sign = text_[opening.end++];
      }
      if (const size_t end = raw_tag(opening, "raw"); end != 0) return {at, 'r', opening.sign, end};
      return opening;
    }
    return {};
  }

  /// Returns the place behind a tag of one word, and behind the white space that its "-" takes; 0
  /// for another tag.
  size_t raw_tag(const Opening& opening, std::string_view word) const {
    if (opening.kind != '%') return 0;
    size_t at = spaces(opening.end);
    if (!text_.substr(at).starts_with(word)) return 0;
    at = spaces(at + word.size());
    const bool ends = word == "endraw";
    if (text_.substr(at).starts_with("-%}")) return spaces(at + 3);
    if (ends && text_.substr(at).starts_with("+%}")) return at + 3;
    if (!text_.substr(at).starts_with("%}")) return 0;
    at += 2;
    return ends && at < text_.size() && text_[at] == '\n' ? at + 1 : at;
  }

  size_t spaces(size_t at) const {
    while (at < text_.size()) {
      size_t after = at;
      if (!is_space(utf8::next(text_, after))) break;
      at = after;
    }
    return at;
  }

  std::string_view stripped(std::string_view data, char sign, bool of_block) const {
    if (sign == '-') return strip(data, false, true);
    if (sign == '+' || !of_block) return data;
    const size_t begin = data.rfind('\n') + 1;  // 0 if there is none
    if (begin == 0 && !line_starting_) return data;
    const std::string_view line = data.substr(begin);
    return strip(line, true, false).empty() ? data.substr(0, begin) : data;
  }

  void skip_comment() {
    const size_t close = text_.find("#}", at_);
    if (close == std::string_view::npos) fail_at(line_, "a comment has no end");
    const char sign = close > at_ ? text_[close - 1] : ' ';
    leave(close + 2, sign);
  }

  void raw() {
    for (size_t at = at_;; ++at) {
      at = text_.find("{%", at);
      if (at == std::string_view::npos) fail_at(line_, "a raw block has no end");
      Opening opening{at, '%', 0, at + 2};
      if (opening.end < text_.size() && (text_[opening.end] == '-' || text_[opening.end] == '+')) {
        opening.sign = text_[opening.end++];
      }
      const size_t end = raw_tag(opening, "endraw");
      if (end == 0) continue;
      put_data(stripped(text_.substr(at_, at - at_), opening.sign, true));
      count_lines(at_, end);
      at_ = end;
      line_starting_ = text_[at_ - 1] == '\n';
      return;
    }
  }

  /// Skips the end of a block or a comment: "-" takes the white space that follows, and a line's
  /// end goes unless there is "+".
  void leave(size_t behind, char sign) {
    size_t end = behind;
    if (sign == '-') {
      end = spaces(behind);
    } else if (sign != '+' && behind < text_.size() && text_[behind] == '\n') {
      end = behind + 1;
    }
    count_lines(at_, end);
    at_ = end;
    line_starting_ = text_[at_ - 1] == '\n';
  }

  void tokens(bool variable) {
    add(variable ? Kind::kVariableBegin : Kind::kBlockBegin, "");
    const int begin = line_;
    open_.clear();
    while (true) {
      const size_t start = at_;
      at_ = spaces(at_);
      count_lines(start, at_);
      if (at_ >= text_.size()) fail_at(begin, variable ? "'{{' has no '}}'" : "'{%' has no '%}'");
      if (open_.empty() && ends(variable)) return;
      token();
    }
  }

  bool ends(bool variable) {
    const std::string_view rest = text_.substr(at_);
    const std::string_view close = variable ? "}}" : "%}";
    const bool signed_end = rest.size() > 2 && (rest[0] == '-' || (rest[0] == '+' && !variable)) &&
                            rest.substr(1).starts_with(close);
    if (!signed_end && !rest.starts_with(close)) return false;
    const char sign = signed_end ? rest[0] : ' ';
    add(variable ? Kind::kVariableEnd : Kind::kBlockEnd, "");
    const size_t behind = at_ + (signed_end ? 3 : 2);
    if (variable) {
      const size_t end = sign == '-' ? spaces(behind) : behind;
      count_lines(at_, end);
      at_ = end;
      line_starting_ = text_[at_ - 1] == '\n';
    } else {
      leave(behind, sign);
    }
    return true;
  }

  void token() {
    const char c = text_[at_];
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    if (is_word(at_)) {
      size_t end = at_;
      while (end < text_.size() && is_word(end)) end += utf8::length(text_[end]);
      add(Kind::kName, std::string(text_.substr(at_, end - at_)));
      at_ = end;
      return;
    }
    constexpr std::array<std::string_view, 28> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
        "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "",  ""};
    for (const std::string_view op : kOperators) {
      if (op.empty() || !text_.substr(at_).starts_with(op)) continue;
      balance(op);
      add(Kind::kOperator, std::string(op));
      at_ += op.size();
      return;
    }
    size_t end = at_;
    utf8::next(text_, end);
    fail_at(line_, fmt::format("unexpected '{}'", printable(text_.substr(at_, end - at_))));
  }

  bool is_word(size_t at) const {
    return text_[at] == '_' ||
           unicode::Unicode::instance().is(utf8::next(text_, at), unicode::kWord);
  }

  void balance(std::string_view op) {
    if (op == "(") open_ += ')';
    if (op == "[") open_ += ']';
    if (op == "{") open_ += '}';
    if (op != ")" && op != "]" && op != "}") return;
    if (open_.empty()) fail_at(line_, fmt::format("unexpected '{}'", op));
    if (open_.back() != op[0]) {
      fail_at(line_, fmt::format("unexpected '{}', wanted '{}'", op, open_.back()));
    }
    open_.pop_back();
  }

  void number() {
    const Number number = number_at(text_, at_);
    std::string digits(text_.substr(at_, number.end - at_));
    std::erase(digits, '_');
    add(number.real ? Kind::kFloat : Kind::kInteger, std::move(digits));
    at_ = number.end;
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail_at(line_, "a text has no end");
    const std::string_view written = text_.substr(at_ + 1, end - at_ - 1);
    add(Kind::kText, unescaped(written, line_));
    count_lines(at_, end);
    at_ = end + 1;
  }

  void put_data(std::string_view data) {
    if (!data.empty()) add(Kind::kData, std::string(data));
  }
  void add(Kind kind, std::string text) { lexemes_.push_back({kind, line_, std::move(text)}); }
  void count_lines(size_t begin, size_t end) {
    line_ += static_cast<int>(std::ranges::count(text_.substr(begin, end - begin), '\n'));
  }

  std::string source_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string open_;  // brackets that have to come
  std::vector<Lexeme> lexemes_;
};

}  // namespace

void fail_at(int line, const std::string& problem) {
  LEVIN_FAIL("text.template", "line {} of the chat template: {}", line, problem);
}

std::vector<Lexeme> lex(std::string_view source) { return Lexer(source).lex(); }

}  // namespace levin::text::jinja
