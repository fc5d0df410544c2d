// for, and the variable "loop".
#include <algorithm>

#include "levin/text/template/interpreter.h"
#include "levin/text/template/values/python_text.h"

namespace levin::text::jinja {
namespace {

Loop& loop_of(const Value& self) { return *self.pointer<Loop>(); }

Value cycle(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty()) interpreter.run().fail("loop.cycle got no values");
  const auto place = static_cast<size_t>(loop_of(self).index0) % arguments.positional.size();
  return arguments.positional[place];
}

Value has_changed(Interpreter&, const Value& self, Arguments& arguments) {
  Loop& loop = loop_of(self);
  const bool same = loop.changed && std::ranges::equal(*loop.changed, arguments.positional, equal);
  if (!same) loop.changed = arguments.positional;
  return Value(!same);
}

}  // namespace

Interpreter::Flow Interpreter::for_(const Statement& statement) {
  std::vector<Value> all = items(evaluate(*statement.expressions[0]));
  Loop& loop = *run_.make<Loop>(*this, statement, *scope_, std::move(all), 1);
  return run_loop(loop, statement);
}

Interpreter::Flow Interpreter::run_loop(Loop& loop, const Statement& statement) {
  Scope* const around = scope_;
  if (statement.recursive) keep(around);
  struct Back {
    ~Back() { scope = around; }
    Scope*& scope;
    Scope* around;
  } const back{scope_, around};
  const auto& symbols = program_.symbols;
  const auto loop_symbol = static_cast<int>(std::ranges::find(symbols, "loop") - symbols.begin());
  Scope* scope = nullptr;
  bool any = false;  // as Jinja counts: passes that break and continue do not end
  while (true) {
    scope_ = around;
    if (!loop.advance()) break;
    if (scope == nullptr || scope->kept) {
      scope = run_.make<Scope>(around);
    } else {
      scope->values.clear();
    }
    scope_ = scope;
    run_.step();
    if (statement.uses_loop) scope->put(loop_symbol, Value(&loop));
    assign(statement.targets[0], loop.current);
    const Flow flow = execute(statement.bodies[0]);
    if (flow == Flow::kBreak) break;
    any = any || flow == Flow::kNext;
  }
  scope_ = around;
  loop.items = {};
  loop.next = 0;
  if (!any && statement.bodies.size() > 1) return inner(statement.bodies[1]);
  return Flow::kNext;
}

bool Interpreter::passes(const Statement& statement, Scope& around, const Value& item) {
  if (statement.expressions.size() < 2) return true;
  Scope* const before = scope_;
  struct Back {
    ~Back() { scope = before; }
    Scope*& scope;
    Scope* before;
  } const back{scope_, before};
  Scope scope(&around);
  scope_ = &scope;
  assign(statement.targets[0], item);
  return truth(evaluate(*statement.expressions[1]));
}

Value Interpreter::loop_again(Loop& loop, const Value& value) {
  if (!loop.statement.recursive) run_.fail("a loop that is called needs the word 'recursive'");
  const Run::Deeper deeper(run_);
  Loop& deeper_loop =
      *run_.make<Loop>(*this, loop.statement, loop.scope, items(value), loop.depth + 1);
  Scope* const before = scope_;
  std::string* const out = out_;
  std::string text;
  struct Back {
    ~Back() {
      interpreter.scope_ = before;
      interpreter.out_ = out;
      interpreter.run_.drop_buffer(text);
    }
    Interpreter& interpreter;
    Scope* before;
    std::string* out;
    std::string& text;
  } const back{*this, before, out, text};
  scope_ = &loop.scope;
  out_ = &text;
  run_loop(deeper_loop, loop.statement);
  return run_.text(text);
}

bool Loop::advance() {
  previous = index0 >= 0 ? current : interpreter.run().missing("there is no previous item");
  if (peek() == nullptr) return false;
  current = *peeked;
  peeked.reset();
  ++index0;
  return true;
}

const Value* Loop::peek() {
  while (!peeked && next < items.size()) {
    const Value& item = items[next++];
    if (decided || interpreter.passes(statement, scope, item)) peeked = item;
  }
  return peeked ? &*peeked : nullptr;
}

int64_t Loop::length() {
  const int64_t taken = index0 + 1 + static_cast<int64_t>(peeked.has_value());
  if (statement.expressions.size() > 1 && !decided) {
    // The condition decides now for all that are left.
    std::vector<Value> left;
    for (; next < items.size(); ++next) {
      if (interpreter.passes(statement, scope, items[next])) left.push_back(items[next]);
    }
    items = std::move(left);
    next = 0;
    decided = true;
  }
  return taken + static_cast<int64_t>(items.size() - next);
}

Value Loop::attribute(std::string_view name) {
  Run& run = interpreter.run();
  if (name == "index0") return Value(index0);
  if (name == "index") return Value(index0 + 1);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(peek() == nullptr);
  if (name == "length") return Value(length());
  if (name == "revindex") return Value(length() - index0);
  if (name == "revindex0") return Value(length() - index0 - 1);
  if (name == "depth") return Value(depth);
  if (name == "depth0") return Value(depth - 1);
  if (name == "previtem") return previous;
  if (name == "nextitem") return peek() != nullptr ? *peek() : run.missing("there is no next item");
  if (name == "cycle") {
    return Value(static_cast<Callable*>(run.make<Function>("cycle", cycle, Value(this))));
  }
  if (name == "changed") {
    return Value(static_cast<Callable*>(run.make<Function>("changed", has_changed, Value(this))));
  }
  return {};
}

}  // namespace levin::text::jinja
