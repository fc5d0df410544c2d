#include <fmt/format.h>

#include <algorithm>

#include "levin/text/template/built_in/built_in.h"
#include "levin/text/template/built_in/method_tables.h"

namespace levin::text::jinja {
namespace {

Value view(Interpreter& interpreter, const Dict& dict, bool keys, bool values, const char* name) {
  Run& run = interpreter.run();
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) {
    items.push_back(keys && values ? Value(run.tuple({key, value})) : keys ? key : value);
  }
  return Value(run.list(std::move(items), List::Kind::kView, name));
}

constexpr BuiltIn kDictMethods[] = {
    {"get", LEVIN_METHOD(no_names(in, arguments, "get");
                         const Parameters given(in.run(), "get", arguments, {"key", "default"});
                         if (!hashable(given.need(0))) in.run().fail(
                             fmt::format("unhashable type: '{}'", type_name(given[0])));
                         const Value* found = self.dict()->find(given[0]);
                         return found != nullptr ? *found
                                : given.has(1)   ? given[1]
                                                 : Value(None{});)},
    {"items",
     LEVIN_METHOD(return nothing_given(in, arguments, "items",
                                       view(in, *self.dict(), true, true, "dict_items"));)},
    {"keys", LEVIN_METHOD(return nothing_given(in, arguments, "keys",
                                               view(in, *self.dict(), true, false, "dict_keys"));)},
    {"values",
     LEVIN_METHOD(return nothing_given(in, arguments, "values",
                                       view(in, *self.dict(), false, true, "dict_values"));)},
    {"copy", LEVIN_METHOD(Dict* made = in.run().dict();
                          for (const auto& [key, value] : self.dict()->items) in.run().put(
                              *made, key, value);
                          return nothing_given(in, arguments, "copy", Value(made));)}};

/// list.index(value, start, stop); a range's takes the value alone.
Value index_in(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  no_names(interpreter, arguments, "index");
  const Parameters given(interpreter.run(), "index", arguments, {"value", "start", "stop"});
  if (self.list()->kind == List::Kind::kRange && given.has(1))
    interpreter.run().fail("'index' of a range takes one argument");
  const auto& items = self.list()->items;
  const auto size = static_cast<int64_t>(items.size());
  const auto place = [&](size_t argument, int64_t otherwise) {
    const int64_t at = given.whole(argument, otherwise);
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t stop = place(2, size);
  for (int64_t i = place(1, 0); i < stop; ++i) {
    if (equal(items[static_cast<size_t>(i)], given.need(0))) return Value(i);
  }
  interpreter.run().fail("the value is not in the list");
}

constexpr BuiltIn kListMethods[] = {
    {"copy", LEVIN_METHOD(return nothing_given(in, arguments, "copy",
                                               Value(in.run().list(self.list()->items,
                                                                   self.list()->kind)));)},
    {"count", LEVIN_METHOD(const Parameters given(in.run(), "count", arguments, {"value"});
                           const Value& value = given.need(0);
                           return Value(static_cast<int64_t>(std::ranges::count_if(
                               self.list()->items,
                               [&](const Value& item) { return equal(item, value); })));)},
    {"index", index_in}};

}  // namespace

Function::Body find_method(const Value& value, std::string_view name) {
  if (value.is_text()) return find_in(text_methods(), name);
  if (value.dict() != nullptr) return find_in(kDictMethods, name);
  const List* list = value.list();
  if (list == nullptr || list->kind >= List::Kind::kView) return nullptr;
  // Neither a tuple nor a range has it.
  if (name == "copy" && list->kind != List::Kind::kList) return nullptr;
  return find_in(kListMethods, name);
}

}  // namespace levin::text::jinja
