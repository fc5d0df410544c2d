#include "levin/text/template/values/run.h"

#include <algorithm>

#include "levin/base/check.h"

namespace levin::text::jinja {
namespace {

constexpr int64_t kDeepestValue = 900;  // lists and dicts within each other

}  // namespace

void Run::fail_with(const char* id, const std::string& problem) const {
  if (line == 0) LEVIN_FAIL(id, "{}", problem);
  LEVIN_FAIL(id, "line {} of the chat template: {}", line, problem);
}

void Run::fail_bound(const char* bound, const char* what, int64_t limit) const {
  fail_with(
      fmt::format("text.template.{}", bound).c_str(),
      fmt::format("it takes more than {} {}; raise TemplateLimits if you trust it", limit, what));
}

void Run::check_depth(int64_t depth) const {
  if (depth > kDeepestValue) fail_bound("depth", "values within each other", kDeepestValue);
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
  if (!hashable(key)) fail("unhashable type: '{}'", type_name(key));
  step();
  take(2 * sizeof(Value) + 48);
  dict.put(std::move(key), std::move(value));
  check_depth(dict.depth);
}

}  // namespace levin::text::jinja
