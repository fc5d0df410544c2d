// Macros, and the arguments of their calls.
#include <fmt/format.h>

#include <algorithm>

#include "levin/text/template/buffer.h"

namespace levin::text::jinja {

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
      run_.fail(fmt::format("macro '{}' takes at most {} arguments", macro.name, count));
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
