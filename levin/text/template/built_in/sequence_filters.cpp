// Filters of lists, dicts and what else has items.
#include <fmt/format.h>

#include <algorithm>

#include "levin/text/template/built_in/filter_tables.h"
#include "levin/text/template/built_in/filters.h"
#include "levin/text/template/built_in/tests.h"
#include "levin/text/template/operators.h"
#include "levin/text/template/values/python_text.h"
#include "levin/text/unicode/utf8.h"

namespace levin::text::jinja {
namespace {

Value length(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "length", arguments, {});
  if (v.is_text()) return Value(static_cast<int64_t>(utf8::count(v.text())));
  if (const Dict* dict = v.dict()) return Value(static_cast<int64_t>(dict->items.size()));
  const List* list = v.list();
  if (list != nullptr && list->kind != List::Kind::kIterator)
    return Value(static_cast<int64_t>(list->items.size()));
  if (v.is_undefined()) return Value(int64_t{0});
  if (auto* loop = v.pointer<Loop>()) return Value(loop->length());
  in.run().fail(fmt::format("object of type '{}' has no length", type_name(v)));
}

Value first_or_last(Interpreter& in, const Value& v, Arguments& arguments, bool last) {
  const Parameters given(in.run(), last ? "last" : "first", arguments, {});
  const std::vector<Value> items = in.items(v);
  if (items.empty()) return in.run().missing("there is no item, the sequence was empty");
  return last ? items.back() : items.front();
}

Value join_filter(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "join", arguments, {"d", "attribute"});
  const std::string between = given.has(0) ? written(run, given[0]) : "";
  std::string made;
  bool first = true;
  for (const Value& item : in.items(v)) {
    if (!std::exchange(first, false)) made += between;
    made += written(run, given.has(1) && !given[1].is_none() ? by_path(in, item, given[1]) : item);
    run.work(between.size());
    run.take(made.size());
    run.free(made.size());
  }
  return run.text(std::move(made));
}

Value items(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "items", arguments, {});
  if (v.is_undefined()) return iterator(in, {});
  if (v.dict() == nullptr) in.run().fail("items: can only get items of a mapping");
  std::vector<Value> made;
  for (const auto& [key, value] : v.dict()->items) made.emplace_back(in.run().tuple({key, value}));
  return iterator(in, std::move(made));
}

Value dictsort(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  fail_if_undefined(run, v);
  if (v.dict() == nullptr) run.fail(fmt::format("dictsort wants a dict, got {}", type_name(v)));
  const bool by_value = given.text(1, "key") == "value";
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : v.dict()->items) {
    keyed.emplace_back(folded(in, by_value ? value : key, given.flag(0, false)),
                       Value(run.tuple({key, value})));
  }
  return Value(run.list(sorted(in, std::move(keyed), given.flag(2, false))));
}

std::vector<std::pair<Value, Value>> keyed(Interpreter& in, const Value& v, const Value& attribute,
                                           bool case_sensitive) {
  std::vector<std::pair<Value, Value>> made;
  for (const Value& item : in.items(v)) {
    const bool plain = attribute.is_undefined() || attribute.is_none();
    made.emplace_back(folded(in, plain ? item : by_path(in, item, attribute), case_sensitive),
                      item);
  }
  return made;
}

Value sort(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  return Value(in.run().list(
      sorted(in, keyed(in, v, given[2], given.flag(1, false)), given.flag(0, false))));
}

Value least(Interpreter& in, const Value& v, Arguments& arguments, bool most) {
  const Parameters given(in.run(), most ? "max" : "min", arguments,
                         {"case_sensitive", "attribute"});
  const auto all = keyed(in, v, given[1], given.flag(0, false));
  if (all.empty()) return in.run().missing("there is no item, the sequence was empty");
  size_t best = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    if (most ? less(in.run(), all[best].first, all[i].first)
             : less(in.run(), all[i].first, all[best].first))
      best = i;
  }
  return all[best].second;
}

Value unique(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "unique", arguments, {"case_sensitive", "attribute"});
  Dict* seen = in.run().dict();
  std::vector<Value> made;
  for (auto& [key, value] : keyed(in, v, given[1], given.flag(0, false))) {
    if (hashable(key) && seen->find(key) != nullptr) continue;
    in.run().put(*seen, key, Value(true));
    made.push_back(value);
  }
  return iterator(in, std::move(made));
}

Value sum(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "sum", arguments, {"attribute", "start"});
  Value total = given.has(1) ? given[1] : Value(int64_t{0});
  for (const Value& item : in.items(v)) {
    total = binary(in.run(), "+", total,
                   given.has(0) && !given[0].is_none() ? by_path(in, item, given[0]) : item);
  }
  return total;
}

Arguments behind(const Arguments& arguments, size_t count) {
  const auto begin = arguments.positional.begin() +
                     static_cast<std::ptrdiff_t>(std::min(count, arguments.positional.size()));
  return {{begin, arguments.positional.end()}, arguments.named};
}

Value map(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> made;
  if (arguments.positional.empty()) {
    const Parameters given(run, "map", arguments, {"attribute", "default"});
    for (const Value& item : in.items(v)) {
      Value one = by_path(in, item, given.need(0));
      made.push_back(one.is_undefined() && given.has(1) ? given[1] : one);
    }
    return iterator(in, std::move(made));
  }
  const std::string_view name = text_of(run, arguments.positional[0], "map");
  const Function::Body filter = find_filter(name);
  if (filter == nullptr) run.fail(fmt::format("there is no filter '{}'", name));
  for (const Value& item : in.items(v)) {
    Arguments rest = behind(arguments, 1);
    made.push_back(filter(in, item, rest));
  }
  return iterator(in, std::move(made));
}

/// select, reject, and those by an attribute.
Value selected(Interpreter& in, const Value& v, Arguments& arguments, bool wanted,
               bool by_attribute) {
  Run& run = in.run();
  size_t at = 0;
  Value attribute;
  if (by_attribute) {
    if (arguments.positional.empty()) run.fail("selectattr wants the name of an attribute");
    attribute = arguments.positional[at++];
  }
  Function::Body test = nullptr;
  if (at < arguments.positional.size()) {
    const std::string_view name = text_of(run, arguments.positional[at++], "select");
    test = find_test(name);
    if (test == nullptr) run.fail(fmt::format("there is no test '{}'", name));
  }
  std::vector<Value> made;
  for (const Value& item : in.items(v)) {
    const Value value = by_attribute ? by_path(in, item, attribute) : item;
    Arguments rest = behind(arguments, at);
    if (truth(test == nullptr ? value : test(in, value, rest)) == wanted) made.push_back(item);
  }
  return iterator(in, std::move(made));
}

Value reverse(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "reverse", arguments, {});
  if (v.is_text()) return sliced(in.run(), v, Value(None{}), Value(None{}), Value(int64_t{-1}));
  std::vector<Value> items = in.items(v);
  std::ranges::reverse(items);
  return iterator(in, std::move(items));
}

constexpr Filter kSequenceFilters[] = {
    {"count", length},
    {"dictsort", dictsort},
    {"items", items},
    {"join", join_filter},
    {"length", length},
    {"map", map},
    {"reverse", reverse},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
    LEVIN_FILTER("first", return first_or_last(in, v, arguments, false)),
    LEVIN_FILTER("last", return first_or_last(in, v, arguments, true)),
    LEVIN_PLAIN_FILTER("list", Value(in.run().list(in.items(v)))),
    LEVIN_FILTER("max", return least(in, v, arguments, true)),
    LEVIN_FILTER("min", return least(in, v, arguments, false)),
    LEVIN_FILTER("reject", return selected(in, v, arguments, false, false)),
    LEVIN_FILTER("rejectattr", return selected(in, v, arguments, false, true)),
    LEVIN_FILTER("select", return selected(in, v, arguments, true, false)),
    LEVIN_FILTER("selectattr", return selected(in, v, arguments, true, true))};

}  // namespace

Value iterator(Interpreter& in, std::vector<Value> items) {
  return Value(in.run().list(std::move(items), List::Kind::kIterator));
}

Value by_path(Interpreter& in, const Value& v, const Value& path) {
  if (!path.is_text()) return in.item(v, path);
  Value value = v;
  std::string_view rest = path.text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool digits = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    value = in.item(value, digits ? Value(int64_t{std::stoll(std::string(part))})
                                  : in.run().text(std::string(part)));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value folded(Interpreter& in, const Value& v, bool case_sensitive) {
  return v.is_text() && !case_sensitive ? in.run().text(lower(v.text())) : v;
}

std::vector<Value> sorted(Interpreter& in, std::vector<std::pair<Value, Value>> keyed,
                          bool reverse) {
  Run& run = in.run();
  run.step(static_cast<int64_t>(keyed.size()) * 20);
  if (reverse) std::ranges::reverse(keyed);
  sort_stably(keyed, [&](const auto& left, const auto& right) {
    return less(run, left.first, right.first);
  });
  if (reverse) std::ranges::reverse(keyed);
  std::vector<Value> made;
  for (auto& [key, value] : keyed) made.push_back(std::move(value));
  return made;
}

std::span<const Filter> sequence_filters() { return kSequenceFilters; }

}  // namespace levin::text::jinja
