// Filters of lists, dicts and other values with items.
#include <fmt/format.h>

#include <algorithm>

#include "levin/base/error.h"
#include "levin/base/text/utf8.h"
#include "levin/text/template/built_in/built_in.h"
#include "levin/text/template/built_in/filter_tables.h"
#include "levin/text/template/operators.h"
#include "levin/text/template/values/python_text.h"

namespace levin::text::jinja {
namespace {

Value length(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "length", arguments, {});
  return Value(size_of(in.run(), v, "length"));
}

Value first_or_last(Interpreter& in, const Value& v, Arguments& arguments, bool last) {
  const Parameters given(in.run(), last ? "last" : "first", arguments, {});
  List* list = v.list();
  const bool once = list != nullptr && list->kind == List::Kind::kIterator;
  if (once && last) in.run().fail("'generator' object is not reversible");
  // Only the first item is taken, so that another may follow.
  if (once && list->next < list->items.size()) return list->items[list->next++];
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
  return generator(in, [&](std::vector<Value>& made) {
    if (v.is_undefined()) return;
    if (v.dict() == nullptr) in.run().fail("items: can only get items of a mapping");
    for (const auto& [key, value] : v.dict()->items)
      made.emplace_back(in.run().tuple({key, value}));
  });
}

Value dictsort(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  fail_if_undefined(run, v);
  if (v.dict() == nullptr) run.fail(fmt::format("dictsort wants a dict, got {}", type_name(v)));
  const bool by_value = given.text(1, "key") == "value";
  if (!by_value && given.text(1, "key") != "key") run.fail("dictsort sorts by 'key' or 'value'");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : v.dict()->items) {
    keyed.emplace_back(folded(in, by_value ? value : key, given.flag(0, false)),
                       Value(run.tuple({key, value})));
  }
  return Value(run.list(sorted(in, std::move(keyed), is_reversed(in, given, 2))));
}

std::vector<std::pair<Value, Value>> keyed(Interpreter& in, const Value& v, const Value& attribute,
                                           bool case_sensitive) {
  std::vector<std::pair<Value, Value>> made;
  for (const Value& item : in.items(v)) {
    made.emplace_back(
        folded(in, attribute.is_undefined() ? item : by_path(in, item, attribute), case_sensitive),
        item);
  }
  return made;
}

/// By one attribute, or several with commas between. As in jinja2 the keys are lists, whose equal items need no order.
Value sort(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> paths;
  if (given.has(2) && given[2].is_text()) {
    std::string_view rest = given[2].text();
    for (size_t comma = 0; comma != std::string_view::npos;) {
      comma = rest.find(',');
      paths.push_back(run.text(std::string(rest.substr(0, comma))));
      if (comma != std::string_view::npos) rest.remove_prefix(comma + 1);
    }
  } else {
    paths.push_back(given.has(2) ? given[2] : Value(None{}));
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : in.items(v)) {
    std::vector<Value> key;
    for (const Value& path : paths)
      key.push_back(folded(in, by_path(in, item, path), given.flag(1, false)));
    keyed.emplace_back(Value(run.list(std::move(key))), item);
  }
  return Value(run.list(sorted(in, std::move(keyed), is_reversed(in, given, 0))));
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
  return generator(in, [&](std::vector<Value>& made) {
    Dict* seen = in.run().dict();
    for (auto& [key, value] : keyed(in, v, given[1], given.flag(0, false))) {
      if (hashable(key) && seen->find(key) != nullptr) continue;
      in.run().put(*seen, key, Value(true));
      made.push_back(value);
    }
  });
}

Value sum(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "sum", arguments, {"attribute", "start"});
  Value total = given.has(1) ? given[1] : Value(int64_t{0});
  if (total.is_text()) in.run().fail("sum cannot add strings; use join");
  for (const Value& item : in.items(v)) {
    total = binary(in.run(), "+", total, given.has(0) ? by_path(in, item, given[0]) : item);
  }
  return total;
}

Arguments behind(const Arguments& arguments, size_t count) {
  const auto begin = arguments.positional.begin() +
                     static_cast<std::ptrdiff_t>(std::min(count, arguments.positional.size()));
  return {{begin, arguments.positional.end()}, arguments.named};
}

/// The function of a filter or a test that a template names by a value.
template <class Find>
Function::Body named_function(Run& run, const Find& find, const Value& name,
                              std::string_view kind) {
  const Function::Body body = name.is_text() ? find(name.text()) : nullptr;
  if (body == nullptr) run.fail(fmt::format("there is no {} '{}'", kind, written(run, name)));
  return body;
}

/// Nothing of a value that counts as false, whatever it is and whatever the arguments are: of none, 0 or "".
Value map(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  return generator(in, [&](std::vector<Value>& made) {
    if (!truth(v)) return;
    if (arguments.positional.empty()) {
      const Parameters given(run, "map", arguments, {"attribute", "default"});
      given.need(0);
      for (const Value& item : in.items(v)) made.push_back(by_path(in, item, given[0], given[1]));
      return;
    }
    for (const Value& item : in.items(v)) {
      const Function::Body filter =
          named_function(run, find_filter, arguments.positional[0], "filter");
      Arguments rest = behind(arguments, 1);
      made.push_back(filter(in, item, rest));
    }
  });
}

/// select, reject, and those by an attribute; nothing of a value that counts as false, as map.
Value selected(Interpreter& in, const Value& v, Arguments& arguments, bool wanted,
               bool by_attribute) {
  Run& run = in.run();
  return generator(in, [&](std::vector<Value>& made) {
    if (!truth(v)) return;
    const auto& given = arguments.positional;
    const size_t name = by_attribute ? 1 : 0;  // the place of the test's name
    if (given.size() < name) run.fail("selectattr wants the name of an attribute");
    for (const Value& item : in.items(v)) {
      Value value = by_attribute ? by_path(in, item, given[0]) : item;
      if (given.size() > name) {
        const Function::Body test = named_function(run, find_test, given[name], "test");
        Arguments rest = behind(arguments, name + 1);
        value = test(in, value, rest);
      }
      if (truth(value) == wanted) made.push_back(item);
    }
  });
}

Value reverse(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "reverse", arguments, {});
  if (v.is_text()) return sliced(in.run(), v, Value(None{}), Value(None{}), Value(int64_t{-1}));
  std::vector<Value> items = in.items(v);
  std::ranges::reverse(items);
  const List* list = v.list();
  // Python cannot go backwards through a generator and makes a list of it.
  if (list != nullptr && list->kind == List::Kind::kIterator)
    return Value(in.run().list(std::move(items)));
  return iterator(in, std::move(items));
}

constexpr BuiltIn kSequenceFilters[] = {
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

int64_t size_of(Run& run, const Value& v, std::string_view filter) {
  if (v.is_text()) return static_cast<int64_t>(utf8::count(v.text()));
  if (const Dict* dict = v.dict()) return static_cast<int64_t>(dict->items.size());
  const List* list = v.list();
  if (list != nullptr && list->kind != List::Kind::kIterator)
    return static_cast<int64_t>(list->items.size());
  if (v.is_undefined()) return 0;
  if (auto* loop = v.pointer<Loop>()) return loop->length();
  run.fail(fmt::format("{}: object of type '{}' has no length", filter, type_name(v)));
}

Value iterator(Interpreter& in, std::vector<Value> items) {
  return Value(in.run().list(std::move(items), List::Kind::kIterator));
}

Value generator(Interpreter& in, const std::function<void(std::vector<Value>&)>& make) {
  std::vector<Value> made;
  std::exception_ptr failure;
  try {
    make(made);
  } catch (const Error& error) {
    // Bounds hold where they are met.
    if (error.id() != "text.template") throw;
    failure = std::current_exception();
  }
  List* list = in.run().list(std::move(made), List::Kind::kIterator);
  list->failure = failure;
  return Value(list);
}

bool is_reversed(Interpreter& in, const Parameters& given, size_t place) {
  if (given.has(place) && !given[place].whole())
    in.run().fail(fmt::format("'reverse' is {}, wanted true or false", type_name(given[place])));
  return given.flag(place, false);
}

Value by_path(Interpreter& in, const Value& v, const Value& path, const Value& otherwise) {
  const auto or_other = [&](Value value) {
    const bool replaced = value.is_undefined() && !otherwise.is_undefined() && !otherwise.is_none();
    return replaced ? otherwise : value;
  };
  if (path.is_none()) return v;
  if (!path.is_text()) return or_other(in.item(v, path));
  Value value = v;
  std::string_view rest = path.text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool digits = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    value = or_other(in.item(value, digits ? Value(int64_t{std::stoll(std::string(part))})
                                           : in.run().text(std::string(part))));
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

std::span<const BuiltIn> sequence_filters() { return kSequenceFilters; }

}  // namespace levin::text::jinja
