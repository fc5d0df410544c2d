// Runs statements.
#include <fmt/format.h>

#include <algorithm>

#include "levin/text/template/buffer.h"
#include "levin/text/template/built_in/built_in.h"
#include "levin/text/template/values/python_text.h"

namespace levin::text::jinja {

const Value* Scope::find(int symbol) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [number, value] : scope->values) {
      if (number == symbol) return &value;
    }
  }
  return nullptr;
}

void Scope::put(int symbol, Value value) {
  for (auto& [number, held] : values) {
    if (number == symbol) {
      held = std::move(value);
      return;
    }
  }
  values.emplace_back(symbol, std::move(value));
}

Interpreter::Interpreter(Run& run, const Program& program) : run_(run), program_(program) {
  globals_ = run_.make<Scope>(nullptr);
  for (size_t i = 0; i < program.symbols.size(); ++i) {
    Value global = find_global(run_, program.symbols[i]);
    if (!global.is_undefined()) globals_->put(static_cast<int>(i), std::move(global));
  }
  Scope* inputs = run_.make<Scope>(globals_);
  scope_ = run_.make<Scope>(inputs);
}

void Interpreter::set(std::string_view name, const Value& value) {
  for (size_t i = 0; i < program_.symbols.size(); ++i) {
    if (program_.symbols[i] == name) scope_->parent->put(static_cast<int>(i), value);
  }
}

Interpreter::Flow Interpreter::execute(const Block& block) {
  for (const auto& statement : block) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  using Kind = Statement::Kind;
  const Run::Deeper deeper(run_);
  run_.step();
  run_.line = statement.line;
  switch (statement.kind) {
    case Kind::kData:
      run_.put_out(*out_, statement.text);
      break;
    case Kind::kOutput:
      for (const ExpressionPtr& expression : statement.expressions) put_out(evaluate(*expression));
      break;
    case Kind::kSet:
      assign(statement.targets[0], evaluate(*statement.expressions[0]));
      break;
    case Kind::kSetBlock:
      return set_block(statement);
    case Kind::kIf:
      return if_(statement);
    case Kind::kFor:
      return for_(statement);
    case Kind::kWith:
      return with(statement);
    case Kind::kFilter:
      return filter_block(statement);
    case Kind::kMacro:
      macro(statement);
      break;
    case Kind::kCallBlock:
      call_block(statement);
      break;
    case Kind::kGeneration:
      generation(statement);
      break;
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::if_(const Statement& statement) {
  for (size_t i = 0; i < statement.expressions.size(); ++i) {
    if (truth(evaluate(*statement.expressions[i]))) return execute(statement.bodies[i]);
  }
  if (statement.bodies.size() > statement.expressions.size())
    return execute(statement.bodies.back());
  return Flow::kNext;
}

void Interpreter::put_out(const Value& value) {
  if (value.is_text()) {
    run_.put_out(*out_, value.text());
  } else {
    run_.put_out(*out_, written(run_, value));
  }
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.kind == Target::Kind::kName) {
    scope_->put(target.symbol, value);
    return;
  }
  if (target.kind == Target::Kind::kAttribute) {
    const Value* held = scope_->find(target.symbol);
    auto* space = held == nullptr ? nullptr : held->pointer<Namespace>();
    if (space == nullptr) run_.fail("cannot assign attribute on non-namespace object");
    put_attribute(run_, *space, target.attribute, value);
    return;
  }
  const std::vector<Value> parts = items(value);
  if (parts.size() != target.parts.size()) {
    run_.fail(fmt::format("got {} values to unpack, wanted {}", parts.size(), target.parts.size()));
  }
  for (size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], parts[i]);
}

/// In a scope of its own.
Interpreter::Flow Interpreter::inner(const Block& block) {
  const ScopeKeeper keeper(scope_);
  scope_ = run_.make<Scope>(scope_);
  return execute(block);
}

/// Passes a block's output to `use` as a string, unless the block leaves a loop that surrounds it.
template <class Use>
Interpreter::Flow Interpreter::captured(const Block& block, const Use& use) {
  Value value;
  {
    Buffer buffer(*this);
    if (const Flow flow = inner(block); flow != Flow::kNext) return flow;
    value = run_.text(buffer.text);
  }
  use(value);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::set_block(const Statement& statement) {
  return captured(statement.bodies[0], [&](const Value& value) {
    assign(statement.targets[0], statement.expressions.empty()
                                     ? value
                                     : filter_block_value(*statement.expressions[0], value));
  });
}

Interpreter::Flow Interpreter::filter_block(const Statement& statement) {
  return captured(statement.bodies[0], [&](const Value& value) {
    put_out(filter_block_value(*statement.expressions[0], value));
  });
}

Interpreter::Flow Interpreter::with(const Statement& statement) {
  const ScopeKeeper keeper(scope_);
  const std::vector<Value> values = evaluate_all(statement.expressions);
  scope_ = run_.make<Scope>(scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], values[i]);
  return execute(statement.bodies[0]);
}

void Interpreter::generation(const Statement& statement) {
  Buffer buffer(*this);
  inner(statement.bodies[0]);
  // Places count as in transformers: from the end of the output of the template's outermost level.
  generations_.emplace_back(root_.size(), root_.size() + buffer.text.size());
  out_ = buffer.before;
  run_.put_out(*out_, buffer.text);
}

}  // namespace levin::text::jinja
