// Evaluates expressions.
#include <fmt/format.h>

#include "levin/text/template/interpreter.h"
#include "levin/text/template/operators.h"
#include "levin/text/template/values/python_text.h"

namespace levin::text::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  const Run::Deeper deeper(run_);
  run_.step();
  return evaluate_inner(expression);
}

Value Interpreter::evaluate_inner(const Expression& expression) {
  using Kind = Expression::Kind;
  const auto& parts = expression.parts;
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.value;
    case Kind::kName:
      return name(expression);
    case Kind::kList:
      return Value(run_.list(evaluate_all(parts)));
    case Kind::kTuple:
      return Value(run_.tuple(evaluate_all(parts)));
    case Kind::kDict:
      return dict(expression);
    case Kind::kAttribute: {
      const Value value = evaluate(*parts[0]);
      run_.line = expression.line;
      return attribute(value, expression.name);
    }
    case Kind::kItem: {
      const Value value = evaluate(*parts[0]);
      const Value key = evaluate(*parts[1]);
      run_.line = expression.line;
      return item(value, key);
    }
    case Kind::kSlice:
      return slice(expression);
    case Kind::kCall:
      return call(expression, nullptr);
    case Kind::kFilter:
      return filter(expression);
    case Kind::kTest:
      return Value(test(expression));
    case Kind::kUnary:
      return unary(run_, expression.name, evaluate(*parts[0]));
    case Kind::kBinary: {
      const Value left = evaluate(*parts[0]);
      const Value right = evaluate(*parts[1]);
      run_.line = expression.line;
      return binary(run_, expression.name, left, right);
    }
    case Kind::kConcat: {
      std::string text;
      for (const ExpressionPtr& part : parts) text += written(run_, evaluate(*part));
      return run_.text(std::move(text));
    }
    case Kind::kCompare:
      return compare(expression);
    case Kind::kNot:
      return Value(!truth(evaluate(*parts[0])));
    case Kind::kAnd: {
      Value left = evaluate(*parts[0]);
      return truth(left) ? evaluate(*parts[1]) : left;
    }
    case Kind::kOr: {
      Value left = evaluate(*parts[0]);
      return truth(left) ? left : evaluate(*parts[1]);
    }
    case Kind::kCondition:
      return condition(expression);
  }
  return {};
}

Value Interpreter::name(const Expression& expression) {
  if (const Value* value = scope_->find(expression.symbol)) return *value;
  return run_.missing("'" + expression.name + "' is undefined");
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& parts) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (const ExpressionPtr& part : parts) values.push_back(evaluate(*part));
  return values;
}

Value Interpreter::dict(const Expression& expression) {
  Dict* made = run_.dict();
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    Value key = evaluate(*expression.parts[i]);
    run_.put(*made, std::move(key), evaluate(*expression.parts[i + 1]));
  }
  return Value(made);
}

Value Interpreter::slice(const Expression& expression) {
  const Value value = evaluate(*expression.parts[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    const ExpressionPtr& part = expression.parts[i + 1];
    bounds[i] = part ? evaluate(*part) : Value(None{});
  }
  run_.line = expression.line;
  return sliced(run_, value, bounds[0], bounds[1], bounds[2]);
}

Arguments Interpreter::arguments(const CallArguments& written) {
  Arguments made{evaluate_all(written.positional), {}};
  for (const auto& [name, expression] : written.named) {
    made.named.emplace_back(name, evaluate(*expression));
  }
  if (written.list) {
    for (Value& value : items(evaluate(*written.list))) made.positional.push_back(std::move(value));
  }
  if (written.dict) {
    const Value value = evaluate(*written.dict);
    const Dict* dict = value.dict();
    if (dict == nullptr)
      run_.fail(fmt::format("the value after '**' is {}, wanted a dict", type_name(value)));
    for (const auto& [key, item] : dict->items) {
      if (!key.is_text()) run_.fail("argument names must be strings");
      for (const auto& [name, other] : made.named) {
        if (name == key.text()) run_.fail(fmt::format("got the argument '{}' twice", name));
      }
      made.named.emplace_back(key.text(), item);
    }
  }
  return made;
}

Value Interpreter::filter(const Expression& expression) {
  return apply_filter(expression, evaluate(*expression.parts[0]));
}

/// Applies the filters of a block; the innermost gets the block's output.
Value Interpreter::filter_block_value(const Expression& expression, const Value& value) {
  const Expression* inner = expression.parts[0].get();
  return apply_filter(expression, inner == nullptr ? value : filter_block_value(*inner, value));
}

Value Interpreter::apply_filter(const Expression& expression, const Value& value) {
  Arguments given = arguments(expression.arguments);
  run_.line = expression.line;
  if (expression.function == nullptr)
    run_.fail(fmt::format("there is no filter '{}'", expression.name));
  return expression.function(*this, value, given);
}

bool Interpreter::test(const Expression& expression) {
  const Value value = evaluate(*expression.parts[0]);
  Arguments given = arguments(expression.arguments);
  run_.line = expression.line;
  if (expression.function == nullptr)
    run_.fail(fmt::format("there is no test '{}'", expression.name));
  return truth(expression.function(*this, value, given));
}

Value Interpreter::compare(const Expression& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (size_t i = 0; i < expression.ops.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1]);
    run_.line = expression.line;
    if (!compared(run_, expression.ops[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::condition(const Expression& expression) {
  if (truth(evaluate(*expression.parts[1]))) return evaluate(*expression.parts[0]);
  if (expression.parts[2]) return evaluate(*expression.parts[2]);
  return run_.missing("the condition is false and there is no 'else'");
}

Value Interpreter::call(const Expression& expression, const Value* caller) {
  const Value callee = evaluate(*expression.parts[0]);
  Arguments given = arguments(expression.arguments);
  if (caller != nullptr) given.named.emplace_back("caller", *caller);
  run_.line = expression.line;
  return call(callee, given);
}

Value Interpreter::call(const Value& callee, Arguments& given) {
  if (auto* callable = callee.pointer<Callable>()) {
    const Run::Deeper deeper(run_);
    return callable->call(*this, given);
  }
  if (auto* loop = callee.pointer<Loop>()) {
    if (given.positional.size() != 1) run_.fail("a loop is called with one argument");
    return loop_again(*loop, given.positional[0]);
  }
  fail_if_undefined(run_, callee);
  run_.fail(fmt::format("'{}' object is not callable", type_name(callee)));
}

}  // namespace levin::text::jinja
