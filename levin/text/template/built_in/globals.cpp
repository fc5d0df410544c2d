#include <fmt/format.h>

#include <ctime>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/text/template/built_in/built_in.h"
#include "levin/text/template/interpreter.h"
#include "levin/text/template/values/python_text.h"

namespace levin::text::jinja {
namespace {

constexpr int64_t kLongestRange = 100000;  // jinja2's sandbox has the same

Value range(Interpreter& interpreter, const Value&, Arguments& arguments) {
  Run& run = interpreter.run();
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty())
    run.fail("range takes 1 to 3 arguments");
  int64_t numbers[3] = {0, 0, 1};
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i].whole()) run.fail(fmt::format("range wants ints, got {}", type_name(given[i])));
    numbers[given.size() == 1 ? 1 : i] = *given[i].whole();
  }
  const auto [begin, end, step] = numbers;
  if (step == 0) run.fail("range: the step must not be zero");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(items.size()) == kLongestRange)
      run.fail(fmt::format("range: more than {} items", kLongestRange));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  List* made = run.list(std::move(items), List::Kind::kRange);
  const std::string ends = fmt::format("range({}, {}", begin, end);
  made->shown = step == 1 ? ends + ")" : fmt::format("{}, {})", ends, step);
  return Value(made);
}

/// dict(...): of a dict, or of pairs, and of names.
Value dict(Interpreter& interpreter, const Value&, Arguments& arguments) {
  Run& run = interpreter.run();
  Dict* made = run.dict();
  if (arguments.positional.size() > 1) run.fail("dict takes at most 1 argument");
  for (const Value& value : arguments.positional) {
    fail_if_undefined(run, value);
    if (const Dict* other = value.dict()) {
      for (const auto& [key, held] : other->items) run.put(*made, key, held);
      continue;
    }
    for (const Value& pair : interpreter.items(value)) {
      const std::vector<Value> both = interpreter.items(pair);
      if (both.size() != 2) run.fail("dict wants pairs");
      run.put(*made, both[0], both[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) run.put(*made, run.text(name), value);
  return Value(made);
}

Value make_namespace(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Run& run = interpreter.run();
  auto* made = run.make<Namespace>();
  const Value attributes = dict(interpreter, self, arguments);
  for (const auto& [name, value] : attributes.dict()->items) {
    put_attribute(run, *made, text_of(run, name, "namespace"), value);
  }
  return Value(made);
}

Value raise(Interpreter& interpreter, const Value&, Arguments& arguments) {
  Run& run = interpreter.run();
  const Parameters given(run, "raise_exception", arguments, {"message"});
  LEVIN_FAIL("text.template.refused", "{}: raise_exception: {}", run.place(),
             printable(written(run, given.need(0))));
}

Value strftime_now(Interpreter& interpreter, const Value&, Arguments& arguments) {
  Run& run = interpreter.run();
  const Parameters given(run, "strftime_now", arguments, {"format"});
  const std::string format(given.text(0));
  if (format.size() > 1000) run.fail("the format of strftime_now has more than 1000 bytes");
  const std::time_t now =
      interpreter.now ? static_cast<std::time_t>(*interpreter.now) : std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::string text(64 * (format.size() + 1), '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &parts));
  return run.text(std::move(text));
}

struct Joiner : Callable {
  explicit Joiner(std::string text) : Callable("joiner"), text(std::move(text)) {}
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    const Parameters none(interpreter.run(), "joiner", arguments, {});
    return interpreter.run().text(std::exchange(used, true) ? text : "");
  }
  std::string text;
  bool used = false;
};

Value joiner(Interpreter& interpreter, const Value&, Arguments& arguments) {
  Run& run = interpreter.run();
  const Parameters given(run, "joiner", arguments, {"sep"});
  return Value(static_cast<Callable*>(run.make<Joiner>(std::string(given.text(0, ", ")))));
}

}  // namespace

void put_attribute(Run& run, Namespace& space, std::string_view name, const Value& value) {
  if (name.starts_with('_'))
    run.fail(
        fmt::format("a namespace takes no name that begins with '_', got '{}'", printable(name)));
  run.take(sizeof(Value) + name.size());
  space.put(name, value);
}

Value find_global(Run& run, std::string_view name) {
  const std::pair<std::string_view, Function::Body> globals[] = {{"range", range},
                                                                 {"dict", dict},
                                                                 {"namespace", make_namespace},
                                                                 {"joiner", joiner},
                                                                 {"raise_exception", raise},
                                                                 {"strftime_now", strftime_now}};
  for (const auto& [known, body] : globals) {
    if (known == name)
      return Value(static_cast<Callable*>(run.make<Function>(std::string(name), body)));
  }
  return {};
}

}  // namespace levin::text::jinja
