// What statements do.
#include <fmt/format.h>

#include <algorithm>

#include "levin/text/template/built_in/globals.h"
#include "levin/text/template/interpreter.h"
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

/// As long as it lives, output goes into it.
struct Interpreter::Buffer {
  explicit Buffer(Interpreter& interpreter) : interpreter(interpreter), before(interpreter.out_) {
    interpreter.out_ = &text;
  }
  ~Buffer() {
    interpreter.out_ = before;
    interpreter.run_.drop_buffer(text);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Interpreter& interpreter;
  std::string* before;
  std::string text;
};

namespace {

/// Puts back what scope the interpreter works in.
struct ScopeKeeper {
  explicit ScopeKeeper(Scope*& scope) : scope(scope), before(scope) {}
  ~ScopeKeeper() { scope = before; }
  ScopeKeeper(const ScopeKeeper&) = delete;
  ScopeKeeper& operator=(const ScopeKeeper&) = delete;
  Scope*& scope;
  Scope* before;
};

}  // namespace

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
      set_block(statement);
      break;
    case Kind::kIf:
      return if_(statement);
    case Kind::kFor:
      return for_(statement);
    case Kind::kWith:
      return with(statement);
    case Kind::kFilter:
      filter_block(statement);
      break;
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

/// What a block puts out, as a text.
Value Interpreter::captured(const Block& block) {
  Buffer buffer(*this);
  inner(block);
  return run_.text(buffer.text);
}

void Interpreter::set_block(const Statement& statement) {
  Value value = captured(statement.bodies[0]);
  if (!statement.expressions.empty()) value = filter_block_value(*statement.expressions[0], value);
  assign(statement.targets[0], value);
}

void Interpreter::filter_block(const Statement& statement) {
  const Value value = captured(statement.bodies[0]);
  put_out(filter_block_value(*statement.expressions[0], value));
}

Interpreter::Flow Interpreter::with(const Statement& statement) {
  const ScopeKeeper keeper(scope_);
  const std::vector<Value> values = evaluate_all(statement.expressions);
  scope_ = run_.make<Scope>(scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], values[i]);
  return execute(statement.bodies[0]);
}

void Interpreter::keep(Scope* scope) {
  for (; scope != nullptr && !scope->kept; scope = scope->parent) scope->kept = true;
}

void Interpreter::macro(const Statement& statement) {
  keep(scope_);
  scope_->put(statement.targets[0].symbol,
              Value(static_cast<Callable*>(run_.make<Macro>(*statement.macro, *scope_))));
}

void Interpreter::call_block(const Statement& statement) {
  keep(scope_);
  const Value caller(static_cast<Callable*>(run_.make<Macro>(*statement.macro, *scope_)));
  put_out(call(*statement.expressions[0], &caller));
}

void Interpreter::generation(const Statement& statement) {
  Buffer buffer(*this);
  inner(statement.bodies[0]);
  // As transformers counts it: from the end of what the template's outermost level has put out.
  generations_.emplace_back(root_.size(), root_.size() + buffer.text.size());
  out_ = buffer.before;
  run_.put_out(*out_, buffer.text);
}

Value Interpreter::call_macro(const MacroBody& macro, Scope& closure, Arguments& given) {
  const Run::Deeper deeper(run_);
  const int line = run_.line;
  const ScopeKeeper keeper(scope_);
  scope_ = run_.make<Scope>(&closure);
  const size_t count = macro.parameters.size();
  std::vector<Value> values(count);
  std::vector<bool> there(count, false);
  List* rest = run_.tuple({});
  for (size_t i = 0; i < given.positional.size(); ++i) {
    if (i < count) {
      values[i] = given.positional[i];
      there[i] = true;
    } else if (macro.uses_varargs) {
      run_.take(sizeof(Value));
      rest->items.push_back(given.positional[i]);
    } else {
      run_.fail(fmt::format("macro '{}' takes not more than {} arguments", macro.name, count));
    }
  }
  Dict* names = run_.dict();
  Value caller;
  for (auto& [name, value] : given.named) {
    const auto at = std::find(macro.parameter_names.begin(), macro.parameter_names.end(), name);
    if (at != macro.parameter_names.end()) {
      const auto place = static_cast<size_t>(at - macro.parameter_names.begin());
      if (there[place]) run_.fail(fmt::format("macro '{}' got '{}' twice", macro.name, name));
      values[place] = value;
      there[place] = true;
    } else if (name == "caller" && macro.uses_caller) {
      caller = value;
    } else if (macro.uses_kwargs) {
      run_.put(*names, run_.text(name), value);
    } else {
      run_.fail(fmt::format("macro '{}' takes no argument '{}'", macro.name, name));
    }
  }
  const size_t first_default = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    if (!there[i]) {
      values[i] = i >= first_default ? evaluate(*macro.defaults[i - first_default])
                                     : run_.missing(fmt::format("parameter '{}' was not provided",
                                                                macro.parameter_names[i]));
    }
    scope_->put(macro.parameters[i], values[i]);
  }
  for (size_t i = 0; i < program_.symbols.size() &&
                     (macro.uses_caller || macro.uses_varargs || macro.uses_kwargs);
       ++i) {
    const std::string& name = program_.symbols[i];
    const auto symbol = static_cast<int>(i);
    const bool taken = std::ranges::count(macro.parameters, symbol) > 0;
    if (taken) continue;
    if (name == "caller" && macro.uses_caller) {
      scope_->put(symbol, caller.is_undefined() ? run_.missing("no caller defined") : caller);
    } else if (name == "varargs" && macro.uses_varargs) {
      scope_->put(symbol, Value(rest));
    } else if (name == "kwargs" && macro.uses_kwargs) {
      scope_->put(symbol, Value(names));
    }
  }
  Buffer buffer(*this);
  execute(macro.body);
  run_.line = line;
  return run_.text(buffer.text);
}

Value Macro::attribute(Interpreter& interpreter, std::string_view name) {
  Run& run = interpreter.run();
  if (name == "name") return run.text(body.name);
  if (name == "catch_kwargs") return Value(body.uses_kwargs);
  if (name == "catch_varargs") return Value(body.uses_varargs);
  if (name == "caller") return Value(body.uses_caller);
  if (name != "arguments") return {};
  std::vector<Value> names;
  for (const std::string& parameter : body.parameter_names) names.push_back(run.text(parameter));
  return Value(run.tuple(std::move(names)));
}

}  // namespace levin::text::jinja
