#pragma once
// Callable: functions, methods and macros; Arguments: the arguments of their calls. Not for users.
//
//   Arguments arguments{.positional = {value}};
//   callable->call(interpreter, arguments);

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/text/template/values/value.h"

namespace levin::text::jinja {

class Interpreter;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable : Object {
  explicit Callable(std::string name) : name(std::move(name)) {}
  virtual Value call(Interpreter& interpreter, Arguments& arguments) = 0;
  virtual std::string_view type_name() const { return "builtin_function_or_method"; }
  /// Returns undefined if there is none.
  virtual Value attribute(Interpreter&, std::string_view) { return {}; }
  std::string name;
};

/// A function of ours; `self` is the value that a method belongs to.
struct Function : Callable {
  using Body = Value (*)(Interpreter& interpreter, const Value& self, Arguments& arguments);
  Function(std::string name, Body body, Value self = {})
      : Callable(std::move(name)), body(body), self(std::move(self)) {}
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    return body(interpreter, self, arguments);
  }
  Body body;
  Value self;
};

/// Takes arguments by place or by name, as a Python function of these parameters does. It throws if
/// an argument comes twice or is unknown.
class Parameters {
 public:
  Parameters(Run& run, std::string_view function, Arguments& arguments,
             std::vector<std::string_view> names);

  bool has(size_t place) const { return !values_[place].is_undefined() || given_[place]; }
  const Value& operator[](size_t place) const { return values_[place]; }
  /// Throws where it was not given.
  const Value& need(size_t place) const;
  /// Return a default for a missing argument; they throw for another type.
  int64_t whole(size_t place, int64_t otherwise) const;
  bool flag(size_t place, bool otherwise) const;
  std::string_view text(size_t place, std::string_view otherwise) const;
  std::string_view text(size_t place) const;

 private:
  Run& run_;
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

}  // namespace levin::text::jinja
