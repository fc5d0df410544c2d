// Operands: names, constants, lists and dicts, and what stands behind them: attributes, subscripts, calls, filters
// and tests.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "levin/base/options.h"
#include "levin/text/template/built_in/built_in.h"
#include "levin/text/template/parsing/expression_parser.h"

namespace levin::text::jinja {
namespace {

Value constant_text(std::string text) {
  return Value(std::make_shared<const Text>(std::move(text), false, nullptr));
}

}  // namespace

ExpressionPtr ExpressionParser::primary() {
  const Lexeme lexeme = now();
  if (lexeme.kind == Kind::kName) {
    take();
    return name(lexeme);
  }
  if (lexeme.kind == Kind::kText || lexeme.kind == Kind::kInteger || lexeme.kind == Kind::kFloat) {
    take();
    return constant(lexeme);
  }
  if (is_op("(")) {
    take();
    ExpressionPtr value;
    if (is_op(")")) {
      value = make(Expression::Kind::kTuple, lexeme.line);
    } else {
      value = tuple({});
    }
    expect_op(")");
    return value;
  }
  if (is_op("[")) return list();
  if (is_op("{")) return dict();
  fail_unexpected("an expression");
}

ExpressionPtr ExpressionParser::name(const Lexeme& lexeme) {
  const std::string& name = lexeme.text;
  ExpressionPtr made = make(Expression::Kind::kConstant, lexeme.line);
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    made->value = Value(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    made->value = Value(None{});
  } else {
    made->kind = Expression::Kind::kName;
    made->name = name;
    made->symbol = symbol(name);
    if (name == "loop") std::fill(loops_.begin(), loops_.end(), true);
    for (MacroNames& macro : macros_) {
      macro.caller |= name == "caller";
      macro.varargs |= name == "varargs";
      macro.kwargs |= name == "kwargs";
    }
  }
  return made;
}

ExpressionPtr ExpressionParser::constant(const Lexeme& lexeme) {
  ExpressionPtr made = make(Expression::Kind::kConstant, lexeme.line);
  if (lexeme.kind == Kind::kText) {
    std::string text = lexeme.text;
    while (now().kind == Kind::kText) text += take().text;
    literals_ += text + '\0';
    made->value = constant_text(std::move(text));
    return made;
  }
  std::string_view digits = lexeme.text;
  if (lexeme.kind == Kind::kFloat) {
    double number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    made->value = Value(number);
    return made;
  }
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && !(digits[1] >= '0' && digits[1] <= '9')) {
    base = digits[1] == 'x' || digits[1] == 'X' ? 16 : digits[1] == 'o' || digits[1] == 'O' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    fail_at(lexeme.line, fmt::format("'{}' is not an integer below 2^63", printable(lexeme.text)));
  }
  made->value = Value(number);
  return made;
}

ExpressionPtr ExpressionParser::list() {
  const int line = take().line;
  std::vector<ExpressionPtr> items;
  while (!is_op("]")) {
    items.push_back(expression());
    if (!is_op("]")) expect_op(",");
  }
  expect_op("]");
  return make(Expression::Kind::kList, line, std::move(items));
}

ExpressionPtr ExpressionParser::dict() {
  const int line = take().line;
  std::vector<ExpressionPtr> items;
  while (!is_op("}")) {
    items.push_back(expression());
    expect_op(":");
    items.push_back(expression());
    if (!is_op("}")) expect_op(",");
  }
  expect_op("}");
  return make(Expression::Kind::kDict, line, std::move(items));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  while (true) {
    if (is_op(".")) {
      value = attribute(std::move(value));
    } else if (is_op("[")) {
      value = subscript(std::move(value));
    } else if (is_op("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::filtered(ExpressionPtr value) {
  while (true) {
    if (is_op("|")) {
      value = filters(std::move(value));
    } else if (is_name("is")) {
      value = test(std::move(value));
    } else if (is_op("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr value) {
  while (skip_op("|")) value = one_filter(std::move(value));
  return value;
}

ExpressionPtr ExpressionParser::inline_filters() { return filters(one_filter(nullptr)); }

ExpressionPtr ExpressionParser::one_filter(ExpressionPtr value) {
  const int line = now().line;
  std::string name = expect_name();
  while (skip_op(".")) name += "." + expect_name();
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(value));
  ExpressionPtr made = make(Expression::Kind::kFilter, line, std::move(parts));
  made->name = name;
  made->function = find_filter(name);
  if (made->function == nullptr) unknown_.emplace_back(line, "filter '" + printable(name) + "'");
  if (is_op("(")) made->arguments = arguments();
  return made;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  const int line = take().line;
  const bool negated = skip_name("not");
  std::string name = expect_name();
  while (skip_op(".")) name += "." + expect_name();
  ExpressionPtr made = make(Expression::Kind::kTest, line, parts_of(std::move(value)));
  made->name = name;
  made->function = find_test(name);
  if (made->function == nullptr) unknown_.emplace_back(line, "test '" + printable(name) + "'");
  const bool starts = now().kind == Kind::kName || now().kind == Kind::kText ||
                      now().kind == Kind::kInteger || now().kind == Kind::kFloat || is_op("[") ||
                      is_op("{");
  if (is_op("(")) {
    made->arguments = arguments();
  } else if (starts && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail("tests with 'is' cannot be chained");
    ExpressionPtr argument = postfix(primary());
    made->depth = std::max(made->depth, argument->depth + 1);
    made->arguments.positional.push_back(std::move(argument));
  }
  return negated ? make(Expression::Kind::kNot, line, parts_of(std::move(made))) : std::move(made);
}

ExpressionPtr ExpressionParser::attribute(ExpressionPtr value) {
  const int line = take().line;
  if (now().kind == Kind::kInteger) {
    return make(Expression::Kind::kItem, line, parts_of(std::move(value), constant(take())));
  }
  ExpressionPtr made = make(Expression::Kind::kAttribute, line, parts_of(std::move(value)));
  made->name = expect_name();
  return made;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  const int line = take().line;
  std::vector<ExpressionPtr> places;
  bool slice = false;
  if (!is_op(":")) places.push_back(expression());
  if (is_op(":")) {
    slice = true;
    if (places.empty()) places.push_back(nullptr);
    for (int i = 0; i < 2; ++i) {
      const bool there = skip_op(":");
      places.push_back(there && !is_op(":") && !is_op("]") ? expression() : nullptr);
    }
  } else if (is_op(",")) {
    while (skip_op(",") && !is_op("]")) places.push_back(expression());
    ExpressionPtr made = make(Expression::Kind::kTuple, line, std::move(places));
    places.clear();
    places.push_back(std::move(made));
  }
  expect_op("]");
  places.insert(places.begin(), std::move(value));
  return make(slice ? Expression::Kind::kSlice : Expression::Kind::kItem, line, std::move(places));
}

ExpressionPtr ExpressionParser::call(ExpressionPtr value) {
  const int line = now().line;
  ExpressionPtr made = make(Expression::Kind::kCall, line, parts_of(std::move(value)));
  made->arguments = arguments();
  return made;
}

CallArguments ExpressionParser::arguments() {
  const Deeper deeper(*this);
  CallArguments arguments;
  expect_op("(");
  const auto ensure = [&](bool good) {
    if (!good) fail("the arguments of a call are in the wrong order");
  };
  while (!is_op(")")) {
    if (skip_op("*")) {
      ensure(!arguments.list && !arguments.dict);
      arguments.list = expression();
    } else if (skip_op("**")) {
      ensure(!arguments.dict);
      arguments.dict = expression();
    } else if (now().kind == Kind::kName && is(look(), Kind::kOperator, "=")) {
      ensure(!arguments.dict);
      std::string name = take().text;
      take();
      arguments.named.emplace_back(std::move(name), expression());
    } else {
      ensure(!arguments.list && !arguments.dict && arguments.named.empty());
      arguments.positional.push_back(expression());
    }
    if (!is_op(")")) expect_op(",");
  }
  expect_op(")");
  return arguments;
}

}  // namespace levin::text::jinja
