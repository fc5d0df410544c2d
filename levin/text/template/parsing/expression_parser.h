#pragma once
// ExpressionParser: what stands between "{{" and "}}", and in tags.
// Not for users. Parser of statements goes on from it.
//
//   ExpressionPtr condition = expressions.tuple({.conditions = false});

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/text/template/parsing/lexer.h"
#include "levin/text/template/parsing/nodes.h"

namespace levin::text::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view source) : lexemes_(lex(source)) {}

 protected:
  using Kind = Lexeme::Kind;

  // The stream.
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

  /// As long as it lives, the template is one deeper.
  struct Deeper {
    explicit Deeper(ExpressionParser& parser) : parser(parser) { parser.deepen(); }
    ~Deeper() { --parser.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ExpressionParser& parser;
  };

  struct TupleOptions {
    bool conditions = true;
    std::string_view end;  // a name that ends it
  };
  /// An expression, or several with commas between, which are a tuple.
  ExpressionPtr tuple(const TupleOptions& options);
  ExpressionPtr expression(bool conditions = true);
  ExpressionPtr primary();
  ExpressionPtr filters(ExpressionPtr value);
  /// The first filter has no "|" before it.
  ExpressionPtr inline_filters();
  int symbol(std::string_view name);

  /// Names that a macro's body reads, which decide what it may be called with.
  struct MacroNames {
    bool caller = false, varargs = false, kwargs = false;
  };
  std::vector<MacroNames> macros_;
  std::vector<bool> loops_;  // whether the bodies that are open read "loop"
  /// Filters and tests that are not there, with their lines. Within conditions they are errors only where they
  /// are reached.
  std::vector<std::pair<int, std::string>> unknown_;
  std::vector<std::string> symbols_;

 private:
  void deepen();
  ExpressionPtr make(Expression::Kind kind, int line, std::vector<ExpressionPtr> parts = {});
  ExpressionPtr condition();
  ExpressionPtr logical_or();
  ExpressionPtr logical_and();
  ExpressionPtr logical_not();
  ExpressionPtr compare();
  ExpressionPtr binary(int level);
  ExpressionPtr concat();
  ExpressionPtr unary(bool with_filters = true);
  ExpressionPtr constant(const Lexeme& lexeme);
  ExpressionPtr name(const Lexeme& lexeme);
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr filtered(ExpressionPtr value);
  ExpressionPtr one_filter(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  ExpressionPtr attribute(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr call(ExpressionPtr value);
  CallArguments arguments();

  std::vector<Lexeme> lexemes_;
  size_t at_ = 0;
  int depth_ = 0;
  std::unordered_map<std::string, int> numbers_;  // of symbols
};

}  // namespace levin::text::jinja
