#include "levin/interchange/program/expression.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/interchange/program/floor_div.h"

namespace levin::interchange {
namespace {

constexpr int kDeepestSize = 100;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::optional<int64_t> power(int64_t base, int64_t exponent) {
  if (exponent < 0 || exponent > 63) return std::nullopt;
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return std::nullopt;
  }
  return result;
}

/// sympy's and torch.utils._sympy's functions of two integers.
std::optional<int64_t> call(std::string_view name, int64_t a, int64_t b) {
  int64_t result = 0;
  if (name == "Add") {
    return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
  }
  if (name == "Mul") {
    return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
  }
  if (name == "Max" || name == "max") return std::max(a, b);
  if (name == "Min" || name == "min") return std::min(a, b);
  if (name == "Pow" || name == "PowByNatural") return power(a, b);
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  if (b == 0 || a == kLeast || b == kLeast) return std::nullopt;
  if (name == "FloorDiv") return floor_div(a, b);
  if (name == "CeilDiv") return -floor_div(-a, b);
  if (name == "CleanDiv") return a % b == 0 ? std::optional(a / b) : std::nullopt;
  if (name == "Mod" || name == "PythonMod") return a - floor_div(a, b) * b;
  return std::nullopt;
}

bool is_call_known(std::string_view name, size_t num_arguments) {
  constexpr std::array<std::string_view, 6> kOfAnyNumber = {"Add", "Mul", "Max",
                                                            "max", "Min", "min"};
  constexpr std::array<std::string_view, 7> kOfTwo = {
      "Pow", "PowByNatural", "FloorDiv", "CeilDiv", "CleanDiv", "Mod", "PythonMod"};
  if (num_arguments == 1 && name == "Identity") return true;
  if (std::ranges::find(kOfAnyNumber, name) != kOfAnyNumber.end()) return num_arguments > 0;
  return num_arguments > 1 && std::ranges::find(kOfTwo, name) != kOfTwo.end();
}

}  // namespace

/// Precedence climbing over Python's operators; sizes have +, -, *, //, % and **.
class Expression::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Expression whole() {
    Expression parsed = sum();
    skip_spaces();
    if (at_ != text_.size()) fail();
    return parsed;
  }

 private:
  [[noreturn]] void fail() const {
    LEVIN_FAIL("interchange.archive", "levin cannot parse the size '{}' at character {}",
               printable(text_.substr(0, 200)), at_);
  }
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view word) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool next_is(std::string_view word) {
    skip_spaces();
    return text_.substr(at_).starts_with(word);
  }

  static Expression call_of(std::string name, std::vector<Expression> arguments) {
    Expression made;
    made.kind_ = Kind::kCall;
    made.name_ = std::move(name);
    made.arguments_ = std::move(arguments);
    return made;
  }
  static Expression number(int64_t value) {
    Expression made;
    made.number_ = value;
    return made;
  }
  static Expression symbol(std::string_view name) {
    Expression made;
    made.kind_ = Kind::kSymbol;
    made.name_ = name;
    return made;
  }

  Expression sum() {
    if (++depth_ > kDeepestSize) fail();
    Expression left = product();
    while (true) {
      if (take("+")) {
        left = call_of("Add", {std::move(left), product()});
      } else if (take("-")) {
        left = call_of("Add", {std::move(left), call_of("Mul", {number(-1), product()})});
      } else {
        --depth_;
        return left;
      }
    }
  }
  Expression product() {
    Expression left = factor();
    while (true) {
      if (next_is("**")) return left;
      if (take("*")) {
        left = call_of("Mul", {std::move(left), factor()});
      } else if (take("//")) {
        left = call_of("FloorDiv", {std::move(left), factor()});
      } else if (take("%")) {
        left = call_of("Mod", {std::move(left), factor()});
      } else {
        return left;
      }
    }
  }
  Expression factor() {
    if (++depth_ > kDeepestSize) fail();
    Expression made = take("-") ? call_of("Mul", {number(-1), factor()}) : raised();
    --depth_;
    return made;
  }
  Expression raised() {
    Expression base = atom();
    return take("**") ? call_of("Pow", {std::move(base), factor()}) : base;
  }
  Expression atom() {
    skip_spaces();
    if (at_ >= text_.size()) fail();
    if (take("(")) {
      Expression inner = sum();
      if (!take(")")) fail();
      return inner;
    }
    if (is_digit(text_[at_])) return number(integer());
    if (!is_letter(text_[at_])) fail();
    const std::string_view name = word();
    if (!take("(")) return symbol(name);
    if (name == "Symbol") return quoted_symbol();
    if (name == "Integer") {
      const bool is_negative = take("-");
      skip_spaces();
      const int64_t value = integer();
      if (!take(")")) fail();
      return number(is_negative ? -value : value);
    }
    std::vector<Expression> arguments;
    while (!take(")")) {
      if (!arguments.empty() && !take(",")) fail();
      if (arguments.size() > text_.size()) fail();
      arguments.push_back(sum());
    }
    return call_of(std::string(name), std::move(arguments));
  }
  /// 's0', positive=True, integer=True)
  Expression quoted_symbol() {
    if (!take("'")) fail();
    const size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) fail();
    const std::string_view name = text_.substr(at_, end - at_);
    const size_t close = text_.find(')', end);
    if (close == std::string_view::npos) fail();
    at_ = close + 1;
    return symbol(name);
  }
  std::string_view word() {
    const size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  int64_t integer() {
    int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) fail();
    at_ += static_cast<size_t>(end - begin);
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

Expression Expression::parse(std::string_view text) { return Parser(text).whole(); }

std::optional<int64_t> Expression::value(const Symbols& symbols) const {
  if (kind_ == Kind::kNumber) return number_;
  if (kind_ == Kind::kSymbol) {
    const auto found = symbols.find(name_);
    return found == symbols.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<int64_t> result;
  for (const Expression& argument : arguments_) {
    const std::optional<int64_t> next = argument.value(symbols);
    if (!next) return std::nullopt;
    result = result ? call(name_, *result, *next) : next;
    if (!result) return std::nullopt;
  }
  return is_call_known(name_, arguments_.size()) ? result : std::nullopt;
}

bool Expression::is_computable() const {
  return (kind_ != Kind::kCall || is_call_known(name_, arguments_.size())) &&
         std::ranges::all_of(arguments_, &Expression::is_computable);
}

std::optional<std::pair<std::string, int64_t>> Expression::solve(int64_t size,
                                                                 const Symbols& symbols) const {
  std::string missing;
  for (const std::string& name : this->symbols()) {
    if (symbols.contains(name) || name == missing) continue;
    if (!missing.empty()) return std::nullopt;
    missing = name;
  }
  if (missing.empty()) return std::nullopt;
  Symbols tried = symbols;
  const auto at = [&](int64_t number) {
    tried[missing] = number;
    return value(tried);
  };
  const auto zero = at(0), one = at(1);
  if (!zero || !one || *one == *zero) return std::nullopt;
  int64_t factor = 0, rest = 0;
  if (__builtin_sub_overflow(*one, *zero, &factor) || __builtin_sub_overflow(size, *zero, &rest)) {
    return std::nullopt;
  }
  const std::optional<int64_t> solution = call("CleanDiv", rest, factor);
  if (!solution || at(*solution) != size) return std::nullopt;
  return std::pair(missing, *solution);
}

void Expression::add_symbols(std::vector<std::string>& names) const {
  if (kind_ == Kind::kSymbol && std::ranges::find(names, name_) == names.end()) {
    names.push_back(name_);
  }
  for (const Expression& argument : arguments_) argument.add_symbols(names);
}

std::vector<std::string> Expression::symbols() const {
  std::vector<std::string> names;
  add_symbols(names);
  return names;
}

std::string Expression::text() const {
  if (kind_ == Kind::kNumber) return std::to_string(number_);
  if (kind_ == Kind::kSymbol) return name_;
  std::vector<std::string> words;
  for (const Expression& argument : arguments_) words.push_back(argument.text());
  if (name_ == "Mul") return fmt::format("{}", fmt::join(words, "*"));
  if (name_ == "Add") return fmt::format("({})", fmt::join(words, " + "));
  return fmt::format("{}({})", name_, fmt::join(words, ", "));
}

}  // namespace levin::interchange
