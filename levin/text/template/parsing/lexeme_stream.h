#pragma once
// LexemeStream: a template's lexemes one by one, and how deep brackets and blocks stand within each other.
// Not for users. The parsers of expressions and of statements go on from it.
//
//   if (skip_name("if")) condition = expression();

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "levin/text/template/parsing/lexer.h"

namespace levin::text::jinja {

class LexemeStream {
 public:
  explicit LexemeStream(std::string_view source) : lexemes_(lex(source)) {}

 protected:
  using Kind = Lexeme::Kind;

  const Lexeme& now() const { return lexemes_[at_]; }
  const Lexeme& look() const { return lexemes_[std::min(at_ + 1, lexemes_.size() - 1)]; }
  Lexeme take() { return at_ + 1 < lexemes_.size() ? lexemes_[at_++] : lexemes_[at_]; }
  static bool is(const Lexeme& lexeme, Kind kind, std::string_view text) {
    return lexeme.kind == kind && lexeme.text == text;
  }
  bool is_op(std::string_view op) const { return is(now(), Kind::kOperator, op); }
  bool is_name(std::string_view name) const { return is(now(), Kind::kName, name); }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  std::string expect_name();
  void expect_name(std::string_view name);
  void expect(Kind kind);
  [[noreturn]] void fail(const std::string& problem) const { fail_at(now().line, problem); }
  [[noreturn]] void fail_unexpected(std::string_view wanted) const;

  /// Counts the template one level deeper as long as it lives.
  struct Deeper {
    explicit Deeper(LexemeStream& parser) : parser(parser) { parser.deepen(); }
    ~Deeper() { --parser.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    LexemeStream& parser;
  };

 private:
  void deepen();

  std::vector<Lexeme> lexemes_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace levin::text::jinja
