#pragma once
// Operators on values, as Python has them.
// Not for users.
//
//   binary(run, "+", left, right);

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "levin/text/template/values/run.h"

namespace levin::text::jinja {

Value unary(Run& run, std::string_view op, const Value& value);
Value binary(Run& run, std::string_view op, const Value& left, const Value& right);
/// Computes with two numbers. signed_number computes +number or -number, and returns nothing for
/// another value.
Value arithmetic(Run& run, std::string_view op, const Value& left, const Value& right);
std::optional<Value> signed_number(Run& run, std::string_view op, const Value& value);
/// ==, <, in, not in and the like.
bool compared(Run& run, std::string_view op, const Value& left, const Value& right);
/// left < right; throws where they have no order.
bool less(Run& run, const Value& left, const Value& right);
/// Keeps the order of equal items, and stays within the items if they have no order, as with NaN.
template <class Item, class Less>
void sort_stably(std::vector<Item>& items, const Less& less) {
  for (size_t width = 1; width < items.size(); width *= 2) {
    std::vector<Item> merged;
    merged.reserve(items.size());
    for (size_t at = 0; at < items.size(); at += 2 * width) {
      const auto place = [&](size_t number) {
        return items.begin() + static_cast<std::ptrdiff_t>(std::min(number, items.size()));
      };
      std::merge(place(at), place(at + width), place(at + width), place(at + 2 * width),
                 std::back_inserter(merged), less);
    }
    items = std::move(merged);
  }
}
/// Returns whether a list, text or dict contains the part.
bool contains(Run& run, const Value& whole, const Value& part);
/// value[begin:end:step]; none where a bound is None.
Value sliced(Run& run, const Value& value, const Value& begin, const Value& end, const Value& step);

/// "%..." % value and "...".format(...), of filters and methods too.
std::string percent_format(Run& run, std::string_view format, const Value& value);

}  // namespace levin::text::jinja
