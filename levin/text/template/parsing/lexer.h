#pragma once
// Lexer: a template's text as tokens. With jinja2's trim_blocks and lstrip_blocks on, as transformers has them.
// Not for users.
//
//   const std::vector<Lexeme> lexemes = lex("{{ name }}");

#include <string>
#include <string_view>
#include <vector>

namespace levin::text::jinja {

struct Lexeme {
  enum class Kind {
    kData,
    kBlockBegin,
    kBlockEnd,
    kVariableBegin,
    kVariableEnd,
    kName,
    kInteger,
    kFloat,
    kText,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;  // a text's meaning, a number without "_"
};

/// Throws Error "text.template" with the line.
std::vector<Lexeme> lex(std::string_view source);

/// Throws that error.
[[noreturn]] void fail_at(int line, const std::string& problem);

}  // namespace levin::text::jinja
