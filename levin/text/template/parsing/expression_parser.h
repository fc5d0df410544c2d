#pragma once
// ExpressionParser: parses the text between "{{" and "}}", and in tags. Not for users. The parser
// of statements derives from it.
//
//   ExpressionPtr condition = expressions.tuple({.conditions = false});

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/text/template/parsing/lexeme_stream.h"
#include "levin/text/template/parsing/nodes.h"

namespace levin::text::jinja {

class ExpressionParser : public LexemeStream {
 public:
  using LexemeStream::LexemeStream;

 protected:
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
  std::vector<bool> loops_;  // for each open body: whether it reads "loop"
  /// Filters and tests that are not there, with their lines. Within conditions they are errors only where they
  /// are reached.
  std::vector<std::pair<int, std::string>> unknown_;
  std::vector<std::string> symbols_;
  std::string literals_;  // texts, each with a byte of 0 behind

 private:
  ExpressionPtr make(Expression::Kind kind, int line, std::vector<ExpressionPtr> parts = {});
  static std::vector<ExpressionPtr> parts_of(ExpressionPtr first, ExpressionPtr second = nullptr);

  // expression_parser.cpp
  ExpressionPtr condition();
  ExpressionPtr logical_or();
  ExpressionPtr logical_and();
  ExpressionPtr logical_not();
  ExpressionPtr compare();
  ExpressionPtr binary(int level);
  ExpressionPtr concat();
  ExpressionPtr unary(bool with_filters = true);

  // operands.cpp
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

  std::unordered_map<std::string, int> numbers_;  // numbers of symbols
};

}  // namespace levin::text::jinja
