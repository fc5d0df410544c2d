#pragma once
// Interpreter: does what a template says.
// Not for users; Template::render does.
//
//   Interpreter interpreter(run, program);
//   interpreter.set("messages", messages);
//   interpreter.render();

#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/text/template/parsing/nodes.h"
#include "levin/text/template/values/run.h"

namespace levin::text::jinja {

/// Variables of one block.
struct Scope : Object {
  explicit Scope(Scope* parent) : parent(parent) {}
  Scope* parent;
  bool kept = false;  // by a macro that was made within
  std::vector<std::pair<int, Value>> values;

  const Value* find(int symbol) const;
  void put(int symbol, Value value);
};

/// Throws the reason if the value is undefined.
void fail_if_undefined(Run& run, const Value& value);

class Interpreter {
 public:
  Interpreter(Run& run, const Program& program);

  void set(std::string_view name, const Value& value);
  void render() { execute(program_.body); }

  const std::string& output() const { return root_; }
  /// The contents of generation blocks: begin and end in the output, in bytes.
  const std::vector<std::pair<size_t, size_t>>& generations() const { return generations_; }

  Run& run() { return run_; }
  std::optional<int64_t>
      now;  // seconds since 1970 that strftime_now shows; the clock's where unset

  // For filters, tests and functions.
  Value call(const Value& callable, Arguments& arguments);
  /// value.name and value[key], as the sandbox gives them: undefined if there is none.
  Value attribute(const Value& value, std::string_view name);
  Value item(const Value& value, const Value& key);
  /// The items of what can be iterated; throws where it cannot.
  std::vector<Value> items(const Value& value);
  Value call_macro(const MacroBody& macro, Scope& closure, Arguments& arguments);
  Value loop_again(Loop& loop, const Value& items);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  struct Buffer;
  friend struct Loop;

  // statements.cpp
  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow if_(const Statement& statement);
  Flow set_block(const Statement& statement);
  Flow with(const Statement& statement);
  Flow filter_block(const Statement& statement);
  void generation(const Statement& statement);
  void put_out(const Value& value);
  void assign(const Target& target, const Value& value);
  Flow inner(const Block& block);
  template <class Use>
  Flow captured(const Block& block, const Use& use);

  // macros.cpp
  void macro(const Statement& statement);
  void call_block(const Statement& statement);
  static void keep(Scope* scope);

  // loops.cpp
  Flow for_(const Statement& statement);
  Flow run_loop(Loop& loop, const Statement& statement);
  bool passes(const Statement& statement, Scope& scope, const Value& item);

  // expressions.cpp
  Value evaluate(const Expression& expression);
  Value evaluate_inner(const Expression& expression);
  Value name(const Expression& expression);
  Value dict(const Expression& expression);
  Value slice(const Expression& expression);
  Value filter(const Expression& expression);
  Value filter_block_value(const Expression& expression, const Value& value);
  Value apply_filter(const Expression& expression, const Value& value);
  bool test(const Expression& expression);
  Value compare(const Expression& expression);
  Value condition(const Expression& expression);
  Value call(const Expression& expression, const Value* caller);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& parts);
  Arguments arguments(const CallArguments& written);

  Run& run_;
  const Program& program_;
  Scope* globals_;
  Scope* scope_;
  std::string root_;
  std::string* out_ = &root_;
  std::vector<std::pair<size_t, size_t>> generations_;
};

/// The variable "loop". Items come one by one, as the loop's condition may depend on what its body does.
struct Loop : Object {
  Loop(Interpreter& interpreter, const Statement& statement, Scope& scope, std::vector<Value> items,
       int64_t depth)
      : interpreter(interpreter),
        statement(statement),
        scope(scope),
        items(std::move(items)),
        depth(depth) {}

  /// Goes on to the next item; false behind the last one.
  bool advance();
  /// The item that comes next; null behind the last one.
  const Value* peek();
  int64_t length();
  /// Returns undefined if there is none.
  Value attribute(std::string_view name);

  Interpreter& interpreter;
  const Statement& statement;
  Scope& scope;  // around the loop
  std::vector<Value> items;
  size_t next = 0;       // the item to look at
  bool decided = false;  // all items that are left have met the condition
  int64_t index0 = -1;
  int64_t depth;
  Value current;
  Value previous;
  std::optional<Value> peeked;
  std::optional<std::vector<Value>> changed;  // the last arguments of loop.changed
};

struct Macro : Callable {
  Macro(const MacroBody& body, Scope& closure)
      : Callable(body.name), body(body), closure(closure) {}
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    return interpreter.call_macro(body, closure, arguments);
  }
  std::string_view type_name() const override { return "Macro"; }
  Value attribute(Interpreter& interpreter, std::string_view name) override;
  const MacroBody& body;
  Scope& closure;
};

}  // namespace levin::text::jinja
