// Operands and what joins them: conditions, logic, comparisons, sums, products, signs.
#include "levin/text/template/parsing/expression_parser.h"

#include <algorithm>

#include "levin/base/check.h"

namespace levin::text::jinja {
namespace {

constexpr int kTallest = 400;  // limit of an expression's tree, such as a sum of so many

}  // namespace

std::vector<ExpressionPtr> ExpressionParser::parts_of(ExpressionPtr first, ExpressionPtr second) {
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(first));
  if (second) parts.push_back(std::move(second));
  return parts;
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
  LEVIN_CHECK(made->depth <= kTallest, "text.template.depth",
              "line {} of the chat template: an expression is nested more than {} levels deep",
              line, kTallest);
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

}  // namespace levin::text::jinja
