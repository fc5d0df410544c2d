#pragma once
// Operators on values, as Python has them.
// Not for users.
//
//   binary(run, "+", left, right);

#include <string_view>

#include "levin/text/template/run.h"

namespace levin::text::jinja {

Value unary(Run& run, std::string_view op, const Value& value);
Value binary(Run& run, std::string_view op, const Value& left, const Value& right);
/// ==, <, in, not in and the like.
bool compared(Run& run, std::string_view op, const Value& left, const Value& right);
/// left < right; throws where they have no order.
bool less(Run& run, const Value& left, const Value& right);
/// Whether a list, text or dict has it.
bool contains(Run& run, const Value& whole, const Value& part);
/// value[begin:end:step]; none where a bound is None.
Value sliced(Run& run, const Value& value, const Value& begin, const Value& end, const Value& step);

/// "%..." % value and "...".format(...), of filters and methods too.
std::string percent_format(Run& run, std::string_view format, const Value& value);

}  // namespace levin::text::jinja
