#include "levin/text/template/built_in/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "levin/text/template/built_in/methods.h"
#include "levin/text/template/built_in/tests.h"
#include "levin/text/template/interpreter.h"
#include "levin/text/template/operators.h"
#include "levin/text/template/values/json_text.h"
#include "levin/text/template/values/python_text.h"
#include "levin/text/unicode/utf8.h"

namespace levin::text::jinja {
namespace {

Value text(Interpreter& in, const Value& v, std::string made) {
  return in.run().text(std::move(made), v.is_safe());
}

Value iterator(Interpreter& in, std::vector<Value> items) {
  return Value(in.run().list(std::move(items), List::Kind::kIterator));
}

/// str(value) on which a method of str is called, by which the filter of the name is done.
Value by_method(Interpreter& in, const Value& v, Arguments& arguments, std::string_view method,
                bool plain) {
  const Value self = in.run().text(written(in.run(), v), v.is_safe() && !plain);
  return find_method(self, method)(in, self, arguments);
}

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

Value default_(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "default", arguments, {"default_value", "boolean"});
  if (v.is_undefined() || (given.flag(1, false) && !truth(v)))
    return given.has(0) ? given[0] : in.run().text("");
  return v;
}

Value replace(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "replace", arguments, {"old", "new", "count"});
  Arguments plain;
  plain.positional = {run.text(written(run, given.need(0))), run.text(written(run, given.need(1)))};
  if (given.has(2) && !given[2].is_none()) plain.positional.push_back(given[2]);
  return by_method(in, v, plain, "replace", true);
}

Value trim(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "trim", arguments, {"chars"});
  Arguments plain;
  if (given.has(0)) plain.positional.push_back(given[0]);
  return by_method(in, v, plain, "strip", false);
}

Value tojson(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "tojson", arguments,
                         {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions options{.ensure_ascii = given.flag(0, false), .sort_keys = given.flag(3, false)};
  if (given.has(1) && !given[1].is_none()) {
    if (given[1].is_text()) {
      options.indent = std::string(given[1].text());
    } else {
      const int64_t blanks = std::max<int64_t>(given.whole(1, 0), 0);
      run.work(static_cast<size_t>(blanks));
      options.indent = std::string(static_cast<size_t>(std::min<int64_t>(blanks, 1 << 20)), ' ');
    }
    options.between_items = ",";
  }
  if (given.has(2) && !given[2].is_none()) {
    const std::vector<Value> both = in.items(given[2]);
    if (both.size() != 2) run.fail("tojson wants two separators");
    options.between_items = std::string(text_of(run, both[0], "tojson"));
    options.between_key_and_value = std::string(text_of(run, both[1], "tojson"));
  }
  return run.text(json_text(run, v, options));
}

/// "a.b.0" of a value.
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

Value folded(Interpreter& in, const Value& v, bool case_sensitive) {
  return v.is_text() && !case_sensitive ? in.run().text(lower(v.text())) : v;
}

/// Sorted by keys, which are made once.
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

Value to_int(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "int", arguments, {"default", "base"});
  fail_if_undefined(in.run(), v);
  if (const auto whole = v.whole()) return Value(*whole);
  std::optional<double> number = v.number();
  if (v.is_text()) {
    std::string digits(strip(v.text()));
    std::erase(digits, '_');
    const char* begin = digits.data() + (digits.starts_with('+') ? 1 : 0);
    const char* end = digits.data() + digits.size();
    int64_t whole = 0;
    if (const auto read = std::from_chars(
            begin, end, whole, static_cast<int>(std::clamp<int64_t>(given.whole(1, 10), 2, 36)));
        read.ec == std::errc() && read.ptr == end) {
      return Value(whole);
    }
    double real = 0;
    if (const auto read = std::from_chars(begin, end, real);
        read.ec == std::errc() && read.ptr == end)
      number = real;
  }
  if (number && std::abs(*number) < 9e18) return Value(static_cast<int64_t>(*number));
  return given.has(0) ? given[0] : Value(int64_t{0});
}

Value to_float(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "float", arguments, {"default"});
  fail_if_undefined(in.run(), v);
  if (const auto number = v.number()) return Value(*number);
  if (v.is_text()) {
    std::string digits(strip(v.text()));
    const char* begin = digits.data() + (digits.starts_with('+') ? 1 : 0);
    double real = 0;
    const auto read = std::from_chars(begin, digits.data() + digits.size(), real);
    if (read.ec == std::errc() && read.ptr == digits.data() + digits.size()) return Value(real);
  }
  return given.has(0) ? given[0] : Value(0.0);
}

Value absolute(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "abs", arguments, {});
  if (!v.number()) in.run().fail(fmt::format("abs wants a number, got {}", type_name(v)));
  if (v.whole() && *v.whole() >= 0) return Value(*v.whole());
  return v.whole() ? unary(in.run(), "-", v) : Value(std::abs(*v.number()));
}

Value round(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "round", arguments, {"precision", "method"});
  if (!v.number()) in.run().fail(fmt::format("round wants a number, got {}", type_name(v)));
  const int64_t digits = given.whole(0, 0);
  const std::string_view method = given.text(1, "common");
  if (digits < 0 || digits > 15) in.run().fail("round wants a precision from 0 to 15");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (method == "ceil") return Value(std::ceil(*v.number() * scale) / scale);
  if (method == "floor") return Value(std::floor(*v.number() * scale) / scale);
  if (method != "common") in.run().fail("round knows common, ceil and floor");
  if (v.whole()) return Value(*v.whole());
  const std::string rounded = fmt::format("{:.{}f}", *v.number(), static_cast<int>(digits));
  return Value(std::strtod(rounded.c_str(), nullptr));
}

Value indent(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "indent", arguments, {"width", "first", "blank"});
  std::string by;
  if (given.has(0) && given[0].is_text()) {
    by = std::string(given[0].text());
  } else {
    by = std::string(static_cast<size_t>(std::clamp<int64_t>(given.whole(0, 4), 0, 4096)), ' ');
  }
  const std::string whole = written(run, v);
  std::string made;
  bool first = true;
  for (size_t at = 0; at <= whole.size();) {
    const size_t end = std::min(whole.find('\n', at), whole.size());
    const std::string_view line = std::string_view(whole).substr(at, end - at);
    if (!first) made += '\n';
    if (first ? given.flag(1, false) : (!line.empty() || given.flag(2, false))) made += by;
    made += line;
    run.work(by.size() + line.size());
    run.take(made.size());
    run.free(made.size());
    first = false;
    at = end + 1;
  }
  return text(in, v, std::move(made));
}

Value batch(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "batch", arguments, {"linecount", "fill_with"});
  const int64_t size = given.whole(0, 0);
  if (size < 1) in.run().fail("batch wants a count from 1 on");
  std::vector<Value> made;
  std::vector<Value> some;
  const auto put = [&] { made.emplace_back(in.run().list(std::exchange(some, {}))); };
  for (const Value& item : in.items(v)) {
    some.push_back(item);
    if (static_cast<int64_t>(some.size()) == size) put();
  }
  if (!some.empty()) {
    in.run().step(given.has(1) ? size : 0);
    while (given.has(1) && static_cast<int64_t>(some.size()) < size) some.push_back(given[1]);
    put();
  }
  return iterator(in, std::move(made));
}

struct Filter {
  std::string_view name;
  Function::Body body;
};

#define LEVIN_FILTER(name, ...) \
  {name, [](Interpreter& in, const Value& v, Arguments& arguments) -> Value { __VA_ARGS__; }}
#define LEVIN_PLAIN_FILTER(name, ...) \
  LEVIN_FILTER(name, const Parameters given(in.run(), name, arguments, {}); return __VA_ARGS__)

constexpr Filter kFilters[] = {
    {"abs", absolute},
    {"batch", batch},
    {"count", length},
    {"d", default_},
    {"default", default_},
    {"dictsort", dictsort},
    {"float", to_float},
    {"indent", indent},
    {"int", to_int},
    {"items", items},
    {"join", join_filter},
    {"length", length},
    {"map", map},
    {"replace", replace},
    {"reverse", reverse},
    {"round", round},
    {"sort", sort},
    {"sum", sum},
    {"tojson", tojson},
    {"trim", trim},
    {"unique", unique},
    LEVIN_FILTER("attr", const Parameters given(in.run(), "attr", arguments, {"name"});
                 return v.dict() != nullptr ? Value() : in.attribute(v, given.text(0))),
    LEVIN_PLAIN_FILTER("capitalize", text(in, v, capitalized(written(in.run(), v)))),
    LEVIN_PLAIN_FILTER(
        "e",
        in.run().text(v.is_safe() ? std::string(v.text()) : escaped(written(in.run(), v)), true)),
    LEVIN_PLAIN_FILTER(
        "escape",
        in.run().text(v.is_safe() ? std::string(v.text()) : escaped(written(in.run(), v)), true)),
    LEVIN_FILTER("first", return first_or_last(in, v, arguments, false)),
    LEVIN_PLAIN_FILTER("forceescape", in.run().text(escaped(written(in.run(), v)), true)),
    LEVIN_FILTER("format",
                 return in.run().text(percent_format(in.run(), written(in.run(), v),
                                                     Value(in.run().tuple(arguments.positional))))),
    LEVIN_FILTER("last", return first_or_last(in, v, arguments, true)),
    LEVIN_PLAIN_FILTER("list", Value(in.run().list(in.items(v)))),
    LEVIN_PLAIN_FILTER("lower", text(in, v, lower(written(in.run(), v)))),
    LEVIN_FILTER("max", return least(in, v, arguments, true)),
    LEVIN_FILTER("min", return least(in, v, arguments, false)),
    LEVIN_FILTER("reject", return selected(in, v, arguments, false, false)),
    LEVIN_FILTER("rejectattr", return selected(in, v, arguments, false, true)),
    LEVIN_PLAIN_FILTER("safe", in.run().text(written(in.run(), v), true)),
    LEVIN_FILTER("select", return selected(in, v, arguments, true, false)),
    LEVIN_FILTER("selectattr", return selected(in, v, arguments, true, true)),
    LEVIN_PLAIN_FILTER("string", v.is_text() ? v : in.run().text(written(in.run(), v))),
    LEVIN_PLAIN_FILTER("title", text(in, v, titled(written(in.run(), v)))),
    LEVIN_PLAIN_FILTER("upper", text(in, v, upper(written(in.run(), v))))};

#undef LEVIN_FILTER
#undef LEVIN_PLAIN_FILTER

}  // namespace

Function::Body find_filter(std::string_view name) {
  for (const Filter& filter : kFilters) {
    if (filter.name == name) return filter.body;
  }
  return nullptr;
}

}  // namespace levin::text::jinja
