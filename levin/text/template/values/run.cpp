#include "levin/text/template/values/run.h"

#include <algorithm>

#include "levin/base/check.h"

namespace levin::text::jinja {
namespace {

constexpr int64_t kDeepestValue = 900;  // lists and dicts within each other

}  // namespace

std::string Run::place() const {
  return line == 0 ? "the chat template" : fmt::format("line {} of the chat template", line);
}

void Run::fail(const std::string& problem) const {
  LEVIN_FAIL("text.template", "{}: {}", place(), problem);
}

void Run::fail_steps() const {
  LEVIN_FAIL("text.template.steps",
             "{}: it takes more than {} steps; raise TemplateLimits::max_steps if you trust it",
             place(), limits_.max_steps);
}

void Run::fail_depth(int64_t limit) const {
  LEVIN_FAIL(
      "text.template.depth",
      "{}: it is nested more than {} levels deep; raise TemplateLimits::max_depth if you trust it",
      place(), limit);
}

void Run::fail_output() const {
  LEVIN_FAIL("text.template.output",
             "{}: its output has more than {} bytes; raise TemplateLimits::max_output_bytes if you "
             "trust it",
             place(), limits_.max_output_bytes);
}

void Run::fail_memory() const {
  LEVIN_FAIL("text.template.memory",
             "{}: its values take more than {} bytes; raise TemplateLimits::max_memory_bytes if "
             "you trust it",
             place(), limits_.max_memory_bytes);
}

void Run::check_depth(int64_t depth) const {
  if (depth > kDeepestValue) fail_depth(kDeepestValue);
}

Value Run::text(std::string bytes, bool safe) {
  work(bytes.size());
  take(bytes.size());
  return Value(std::make_shared<const Text>(std::move(bytes), safe, this));
}

List* Run::list(std::vector<Value> items, List::Kind kind, const char* name) {
  constexpr const char* kNames[] = {"list", "tuple", "range", "dict_items", "generator"};
  step(1 + static_cast<int64_t>(items.size() / 8));
  take(items.capacity() * sizeof(Value));
  List* made = make<List>();
  made->kind = kind;
  made->name = name != nullptr ? name : kNames[static_cast<size_t>(kind)];
  for (const Value& item : items) made->depth = std::max(made->depth, 1 + depth_of(item));
  check_depth(made->depth);
  made->items = std::move(items);
  return made;
}

void Run::put(Dict& dict, Value key, Value value) {
  if (!hashable(key)) fail(fmt::format("unhashable type: '{}'", type_name(key)));
  step();
  take(2 * sizeof(Value) + 48);
  dict.put(std::move(key), std::move(value));
  check_depth(dict.depth);
}

}  // namespace levin::text::jinja
