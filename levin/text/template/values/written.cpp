// Values as Python writes them: str and repr.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "levin/base/text/utf8.h"
#include "levin/text/template/values/python_text.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text::jinja {
namespace {

bool is_printable(char32_t c) {
  constexpr uint32_t kNot = unicode::bit(unicode::kCc) | unicode::bit(unicode::kCf) |
                            unicode::bit(unicode::kCs) | unicode::bit(unicode::kCo) |
                            unicode::bit(unicode::kCn) | unicode::bit(unicode::kZl) |
                            unicode::bit(unicode::kZp) | unicode::bit(unicode::kZs);
  return c == ' ' || (unicode::Unicode::instance().category_bit(c) & kNot) == 0;
}

std::string represented_list(Run& run, const List& list) {
  switch (list.kind) {
    case List::Kind::kIterator:
      return fmt::format("<{} object>", list.name);
    case List::Kind::kRange: {
      if (!list.shown.empty()) return list.shown;
      const auto& items = list.items;
      if (items.empty()) return "range(0, 0)";
      const int64_t first = *items[0].whole();
      const int64_t step = items.size() > 1 ? *items[1].whole() - first : 1;
      const int64_t last = *items.back().whole();
      const std::string ends = fmt::format("range({}, {}", first, last + step);
      return step == 1 ? ends + ")" : fmt::format("{}, {})", ends, step);
    }
    default:
      break;
  }
  std::string text;
  for (const Value& item : list.items) {
    if (!text.empty()) text += ", ";
    text += represented(run, item);
  }
  run.work(text.size());
  if (list.kind == List::Kind::kView) return fmt::format("{}([{}])", list.name, text);
  if (list.kind == List::Kind::kList) return "[" + text + "]";
  return "(" + text + (list.items.size() == 1 ? ",)" : ")");
}

std::string represented_dict(Run& run, const Dict& dict) {
  std::string text = "{";
  for (const auto& [key, value] : dict.items) {
    if (text.size() > 1) text += ", ";
    text += represented(run, key) + ": " + represented(run, value);
  }
  run.work(text.size());
  return text + "}";
}

}  // namespace

std::string written(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = shortest.find('e');
  int exponent = 0;
  std::from_chars(shortest.data() + mark + (shortest[mark + 1] == '+' ? 2 : 1), end.ptr, exponent);
  std::string digits;
  for (const char c : shortest.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const std::string sign = std::signbit(number) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    const std::string rest = digits.size() > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], rest, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string quoted(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string made(1, quote);
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8::next(text, at);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      made += '\\';
      made += static_cast<char>(c);
    } else if (c == '\n') {
      made += "\\n";
    } else if (c == '\r') {
      made += "\\r";
    } else if (c == '\t') {
      made += "\\t";
    } else if (is_printable(c)) {
      utf8::append(made, c);
    } else {
      const auto code = static_cast<uint32_t>(c);
      made += c < 0x100     ? fmt::format("\\x{:02x}", code)
              : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                            : fmt::format("\\U{:08x}", code);
    }
  }
  return made + quote;
}

std::string written(Run& run, const Value& value) {
  if (value.is_text()) return std::string(value.text());
  if (value.is_undefined()) return "";
  return represented(run, value);
}

std::string represented(Run& run, const Value& value) {
  const Run::Deeper deeper(run);
  run.step();
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return truth(value) ? "True" : "False";
  if (const auto* whole = value.get<int64_t>()) return std::to_string(*whole);
  if (const auto* number = value.get<double>()) return written(*number);
  if (value.is_text()) {
    run.work(value.text().size());
    return value.is_safe() ? "Markup(" + quoted(value.text()) + ")" : quoted(value.text());
  }
  if (const List* list = value.list()) return represented_list(run, *list);
  if (const Dict* dict = value.dict()) return represented_dict(run, *dict);
  if (const auto* space = value.pointer<Namespace>()) {
    Dict attributes;
    for (const auto& [name, held] : space->items) attributes.put(run.text(name), held);
    return "<Namespace " + represented_dict(run, attributes) + ">";
  }
  return fmt::format("<{} object>", type_name(value));
}

}  // namespace levin::text::jinja
