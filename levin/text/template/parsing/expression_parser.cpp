#include "levin/text/template/parsing/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/text/template/built_in/filters.h"
#include "levin/text/template/built_in/tests.h"

namespace levin::text::jinja {
namespace {

constexpr int kDeepest = 200;  // brackets and blocks within each other
constexpr int kTallest = 400;  // of an expression's tree, such as a sum of so many

Value constant_text(std::string text) {
  return Value(std::make_shared<const Text>(std::move(text), false, nullptr));
}

std::vector<ExpressionPtr> parts_of(ExpressionPtr first, ExpressionPtr second = nullptr) {
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(first));
  if (second) parts.push_back(std::move(second));
  return parts;
}

}  // namespace

bool ExpressionParser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail_unexpected(fmt::format("'{}'", op));
}

std::string ExpressionParser::expect_name() {
  if (now().kind != Kind::kName) fail_unexpected("a name");
  return take().text;
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_unexpected(fmt::format("'{}'", name));
}

void ExpressionParser::expect(Kind kind) {
  if (now().kind != kind) fail_unexpected(kind == Kind::kBlockEnd ? "'%}'" : "'}}'");
  take();
}

void ExpressionParser::fail_unexpected(std::string_view wanted) const {
  std::string got = "the end of the template";
  switch (now().kind) {
    case Kind::kData:
      got = "text";
      break;
    case Kind::kBlockBegin:
      got = "'{%'";
      break;
    case Kind::kBlockEnd:
      got = "'%}'";
      break;
    case Kind::kVariableBegin:
      got = "'{{'";
      break;
    case Kind::kVariableEnd:
      got = "'}}'";
      break;
    case Kind::kEnd:
      break;
    default:
      got = fmt::format("'{}'", printable(now().text));
  }
  fail(fmt::format("got {}, wanted {}", got, wanted));
}

void ExpressionParser::deepen() {
  if (++depth_ > kDeepest) {
    --depth_;
    LEVIN_FAIL("text.template.depth",
               "line {} of the chat template: more than {} parts stand within each other",
               now().line, kDeepest);
  }
}

int ExpressionParser::symbol(std::string_view name) {
  const auto [at, fresh] = numbers_.emplace(name, static_cast<int>(symbols_.size()));
  if (fresh) symbols_.emplace_back(name);
  return at->second;
}

ExpressionPtr ExpressionParser::make(Expression::Kind kind, int line,
                                     std::vector<ExpressionPtr> parts) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  for (const ExpressionPtr& part : parts) {
    if (part) made->depth = std::max(made->depth, part->depth + 1);
  }
  made->parts = std::move(parts);
  LEVIN_CHECK(
      made->depth <= kTallest, "text.template.depth",
      "line {} of the chat template: an expression has more than {} parts within each other", line,
      kTallest);
  return made;
}

ExpressionPtr ExpressionParser::tuple(const TupleOptions& options) {
  const int line = now().line;
  std::vector<ExpressionPtr> items;
  bool several = false;
  while (true) {
    const bool ends = now().kind == Kind::kVariableEnd || now().kind == Kind::kBlockEnd ||
                      is_op(")") || (!options.end.empty() && is_name(options.end));
    if (ends) break;
    items.push_back(expression(options.conditions));
    if (!skip_op(",")) break;
    several = true;
  }
  if (!several) {
    if (items.empty()) fail_unexpected("an expression");
    return std::move(items[0]);
  }
  return make(Expression::Kind::kTuple, line, std::move(items));
}

ExpressionPtr ExpressionParser::expression(bool conditions) {
  const Deeper deeper(*this);
  return conditions ? condition() : logical_or();
}

ExpressionPtr ExpressionParser::condition() {
  const int line = now().line;
  const size_t unknown = unknown_.size();
  ExpressionPtr value = logical_or();
  while (skip_name("if")) {
    std::vector<ExpressionPtr> parts = parts_of(std::move(value), logical_or());
    parts.push_back(nullptr);
    if (skip_name("else")) {
      const Deeper deeper(*this);
      parts[2] = condition();
    }
    value = make(Expression::Kind::kCondition, line, std::move(parts));
    unknown_.resize(unknown);
  }
  return value;
}

ExpressionPtr ExpressionParser::logical_or() {
  ExpressionPtr value = logical_and();
  while (is_name("or")) {
    const int line = take().line;
    value = make(Expression::Kind::kOr, line, parts_of(std::move(value), logical_and()));
  }
  return value;
}

ExpressionPtr ExpressionParser::logical_and() {
  ExpressionPtr value = logical_not();
  while (is_name("and")) {
    const int line = take().line;
    value = make(Expression::Kind::kAnd, line, parts_of(std::move(value), logical_not()));
  }
  return value;
}

ExpressionPtr ExpressionParser::logical_not() {
  if (!is_name("not")) return compare();
  const Deeper deeper(*this);
  const int line = take().line;
  return make(Expression::Kind::kNot, line, parts_of(logical_not()));
}

ExpressionPtr ExpressionParser::compare() {
  const int line = now().line;
  std::vector<ExpressionPtr> parts = parts_of(binary(0));
  std::vector<std::string> ops;
  while (true) {
    static constexpr std::string_view kCompared[] = {"==", "!=", "<", "<=", ">", ">="};
    if (now().kind == Kind::kOperator && std::ranges::count(kCompared, now().text) > 0) {
      ops.push_back(take().text);
    } else if (skip_name("in")) {
      ops.emplace_back("in");
    } else if (is_name("not") && is(look(), Kind::kName, "in")) {
      take();
      take();
      ops.emplace_back("not in");
    } else {
      break;
    }
    parts.push_back(binary(0));
  }
  if (ops.empty()) return std::move(parts[0]);
  ExpressionPtr made = make(Expression::Kind::kCompare, line, std::move(parts));
  made->ops = std::move(ops);
  return made;
}

/// Sums, then what is joined by "~", then products, then powers.
ExpressionPtr ExpressionParser::binary(int level) {
  static const std::vector<std::string_view> kOps[] = {{"+", "-"}, {"*", "/", "//", "%"}, {"**"}};
  const auto next = [&] { return level == 0 ? concat() : level == 1 ? binary(2) : unary(); };
  ExpressionPtr value = next();
  while (now().kind == Kind::kOperator && std::ranges::count(kOps[level], now().text) > 0) {
    const Lexeme op = take();
    value = make(Expression::Kind::kBinary, op.line, parts_of(std::move(value), next()));
    value->name = op.text;
  }
  return value;
}

ExpressionPtr ExpressionParser::concat() {
  const int line = now().line;
  std::vector<ExpressionPtr> parts = parts_of(binary(1));
  while (skip_op("~")) parts.push_back(binary(1));
  if (parts.size() == 1) return std::move(parts[0]);
  return make(Expression::Kind::kConcat, line, std::move(parts));
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Deeper deeper(*this);
  ExpressionPtr value;
  if (is_op("-") || is_op("+")) {
    const Lexeme op = take();
    value = make(Expression::Kind::kUnary, op.line, parts_of(unary(false)));
    value->name = op.text;
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filtered(std::move(value)) : std::move(value);
}

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
    fail_at(lexeme.line, fmt::format("'{}' is no whole number below 2^63", printable(lexeme.text)));
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
    if (!good) fail("arguments of a call stand in the wrong order");
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
