// Filters of numbers.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "levin/base/text/utf8.h"
#include "levin/text/template/built_in/filter_tables.h"
#include "levin/text/template/operators.h"
#include "levin/text/template/values/python_text.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text::jinja {
namespace {

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

/// To a multiple of 10^zeros; half of one goes to the even multiple.
Value to_tens(const Value& v, int zeros) {
  int64_t unit = 1;
  for (int i = 0; i < zeros; ++i) unit *= 10;
  if (const auto whole = v.whole()) {
    int64_t rest = *whole % unit;
    if (rest < 0) rest += unit;
    const bool is_odd = ((*whole - rest) / unit) % 2 != 0;
    const bool goes_up = rest > unit / 2 || (rest == unit / 2 && is_odd);
    return Value(*whole - rest + (goes_up ? unit : 0));
  }
  const double whole_unit = static_cast<double>(unit);
  return Value(std::nearbyint(*v.number() / whole_unit) * whole_unit);
}

Value round(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "round", arguments, {"precision", "method"});
  if (!v.number()) in.run().fail(fmt::format("round wants a number, got {}", type_name(v)));
  const std::string_view method = given.text(1, "common");
  const bool to_whole = given.has(0) && given[0].is_none();
  const int64_t digits = to_whole ? 0 : given.whole(0, 0);
  if (method != "common" && (to_whole || (method != "ceil" && method != "floor")))
    in.run().fail(
        "round wants the method common, ceil or floor, and a precision with ceil and floor");
  if (digits < -15 || digits > 15) in.run().fail("round wants a precision from -15 to 15");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (method == "ceil") return Value(std::ceil(*v.number() * scale) / scale);
  if (method == "floor") return Value(std::floor(*v.number() * scale) / scale);
  if (digits < 0) return to_tens(v, static_cast<int>(-digits));
  if (v.whole()) return Value(*v.whole());
  if (to_whole && std::abs(*v.number()) >= 9e18)
    in.run().fail("the number is too large for an int");
  if (to_whole) return Value(static_cast<int64_t>(std::nearbyint(*v.number())));
  const std::string rounded = fmt::format("{:.{}f}", *v.number(), static_cast<int>(digits));
  return Value(std::strtod(rounded.c_str(), nullptr));
}

Value wordcount(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "wordcount", arguments, {});
  const std::string whole = written(in.run(), v);
  int64_t words = 0;
  bool within = false;
  for (size_t at = 0; at < whole.size();) {
    const char32_t c = utf8::next(whole, at);
    const bool is_word = c == '_' || (unicode::Unicode::instance().category_bit(c) &
                                      (unicode::kLetters | unicode::kNumbers)) != 0;
    words += is_word && !within;
    within = is_word;
  }
  return Value(words);
}

/// 1300000 as "1.3 MB".
Value filesizeformat(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "filesizeformat", arguments, {"binary"});
  Arguments none;
  const bool readable = v.number().has_value() || v.is_text();
  if (!readable) run.fail(fmt::format("filesizeformat wants a number, got {}", type_name(v)));
  const double not_a_number = std::nan("");
  none.positional.emplace_back(not_a_number);
  const double bytes = *to_float(in, v, none).number();
  if (std::isnan(bytes) || std::isinf(bytes)) run.fail("filesizeformat wants a number");
  const bool binary = given.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return run.text("1 Byte");
  if (bytes < base) return run.text(fmt::format("{:.0f} Bytes", std::trunc(bytes)));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  for (size_t i = 0;; ++i) {
    unit *= base;
    if (bytes >= unit && i + 1 < kPrefixes.size()) continue;
    const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
    return run.text(fmt::format("{:.1f} {}{}", base * bytes / unit, prefix, binary ? "iB" : "B"));
  }
}

constexpr BuiltIn kNumberFilters[] = {{"filesizeformat", filesizeformat},
                                      {"wordcount", wordcount},
                                      {"abs", absolute},
                                      {"float", to_float},
                                      {"int", to_int},
                                      {"round", round}};

}  // namespace

std::span<const BuiltIn> number_filters() { return kNumberFilters; }

}  // namespace levin::text::jinja
