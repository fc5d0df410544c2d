#pragma once
// The tables of filters by purpose. Not for users; find_filter looks through them.
//
//   for (const BuiltIn& filter : number_filters()) ...

#include <functional>
#include <utility>
#include <vector>

#include "levin/text/template/built_in/built_in.h"
#include "levin/text/template/interpreter.h"

namespace levin::text::jinja {

std::span<const BuiltIn> group_filters();
std::span<const BuiltIn> text_filters();
std::span<const BuiltIn> sequence_filters();
std::span<const BuiltIn> number_filters();

/// Returns "a.b.0" of a value; the value itself if the path is none. A step to nothing gives
/// `otherwise`, if that is defined.
Value by_path(Interpreter& in, const Value& v, const Value& path, const Value& otherwise = {});
/// Returns Python's len(); an error names the filter if there is none.
int64_t size_of(Run& run, const Value& v, std::string_view filter);
/// In lower case where it is a text and cases are the same.
Value folded(Interpreter& in, const Value& v, bool case_sensitive);
Value iterator(Interpreter& in, std::vector<Value> items);
/// An iterator over what `make` puts into the list. As a generator of Python's it fails where its items are
/// taken, and not where it is made.
Value generator(Interpreter& in, const std::function<void(std::vector<Value>&)>& make);
/// Python's sorted(reverse=...): true, false or an int.
bool is_reversed(Interpreter& in, const Parameters& given, size_t place);
/// Sorted by keys, which are made once.
std::vector<Value> sorted(Interpreter& in, std::vector<std::pair<Value, Value>> keyed,
                          bool reverse);

}  // namespace levin::text::jinja

/// A filter by the body of its function, and one without arguments by its value.
#define LEVIN_FILTER(name, ...) \
  {name, [](Interpreter& in, const Value& v, Arguments& arguments) -> Value { __VA_ARGS__; }}
#define LEVIN_PLAIN_FILTER(name, ...) \
  LEVIN_FILTER(name, const Parameters given(in.run(), name, arguments, {}); return __VA_ARGS__)
