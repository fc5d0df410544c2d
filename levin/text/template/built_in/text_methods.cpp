// Methods of texts.
#include <fmt/format.h>

#include <algorithm>

#include "levin/base/text/utf8.h"
#include "levin/text/template/built_in/method_tables.h"
#include "levin/text/template/operators.h"
#include "levin/text/template/values/python_text.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text::jinja {
namespace {

using Views = std::vector<std::string_view>;

Value of(Interpreter& interpreter, const Value& self, std::string_view text) {
  return interpreter.run().text(std::string(text), self.is_safe());
}

/// str.strip and its kin.
Value stripped(Interpreter& interpreter, const Value& self, Arguments& arguments, bool left,
               bool right) {
  const Parameters given(interpreter.run(), "strip", arguments, {"chars"});
  interpreter.run().work(self.text().size());
  if (!given.has(0) || given[0].is_none())
    return of(interpreter, self, strip(self.text(), left, right));
  return of(interpreter, self, strip(self.text(), given.text(0), left, right));
}

Views pieces_at_space(std::string_view text, int64_t most) {
  Views pieces;
  while (!(text = strip(text, true, false)).empty()) {
    if (most >= 0 && static_cast<int64_t>(pieces.size()) == most) {
      pieces.push_back(text);  // with the white space at its end
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t after = end;
      if (is_space(utf8::next(text, after))) break;
      end = after;
    }
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return pieces;
}

Views pieces_at_space_from_right(std::string_view text, int64_t most) {
  Views pieces;
  while (!(text = strip(text, false, true)).empty()) {
    if (most >= 0 && static_cast<int64_t>(pieces.size()) == most) {
      pieces.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t before = utf8::before(text, begin);
      const size_t place = before;
      if (is_space(utf8::next(text, before))) break;
      begin = place;
    }
    pieces.push_back(text.substr(begin));
    text = text.substr(0, begin);
  }
  std::ranges::reverse(pieces);
  return pieces;
}

Views pieces_at(std::string_view text, std::string_view mark, int64_t most, bool right) {
  Views pieces;
  while (most < 0 || static_cast<int64_t>(pieces.size()) < most) {
    const size_t at = right ? text.rfind(mark) : text.find(mark);
    if (at == std::string_view::npos) break;
    pieces.push_back(right ? text.substr(at + mark.size()) : text.substr(0, at));
    text = right ? text.substr(0, at) : text.substr(at + mark.size());
  }
  pieces.push_back(text);
  if (right) std::ranges::reverse(pieces);
  return pieces;
}

Value list_of(Interpreter& interpreter, const Value& self, const Views& pieces) {
  std::vector<Value> items;
  for (const std::string_view piece : pieces) items.push_back(of(interpreter, self, piece));
  return Value(interpreter.run().list(std::move(items)));
}

Value split_at(Interpreter& interpreter, const Value& self, Arguments& arguments, bool right) {
  Run& run = interpreter.run();
  const Parameters given(run, "split", arguments, {"sep", "maxsplit"});
  const int64_t most = given.whole(1, -1);
  run.work(self.text().size());
  if (!given.has(0) || given[0].is_none()) {
    return list_of(
        interpreter, self,
        right ? pieces_at_space_from_right(self.text(), most) : pieces_at_space(self.text(), most));
  }
  const std::string_view mark = given.text(0);
  if (mark.empty()) run.fail("empty separator");
  return list_of(interpreter, self, pieces_at(self.text(), mark, most, right));
}

Value splitlines(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given(interpreter.run(), "splitlines", arguments, {"keepends"});
  if (given.has(0) && !given[0].whole())
    interpreter.run().fail("'splitlines' wants true or false for 'keepends'");
  const bool keep = given.flag(0, false);
  const std::string_view text = self.text();
  interpreter.run().work(text.size());
  Views lines;
  for (size_t at = 0, begin = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = utf8::next(text, at);
    const bool breaks =
        (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    if (breaks) {
      lines.push_back(text.substr(begin, (keep ? at : end) - begin));
      begin = at;
    } else if (at == text.size()) {
      lines.push_back(text.substr(begin));
    }
  }
  return list_of(interpreter, self, lines);
}

/// The part of a text from argument 1 to argument 2, and how many code points are before it. Nothing where it
/// would begin behind the text's end, so that not even "" is in it.
struct Window {
  std::string_view text;
  int64_t before;
};
std::optional<Window> window_of(Run& run, const Value& self, const Parameters& given) {
  const std::string_view text = self.text();
  run.work(text.size());
  if (!given.has(1)) return Window{text, 0};
  const auto size = static_cast<int64_t>(utf8::count(text));
  const auto place = [&](size_t argument, int64_t otherwise) {
    if (!given.has(argument) || given[argument].is_none()) return otherwise;
    const int64_t at = given.whole(argument, otherwise);
    return at < 0 ? std::max<int64_t>(at + size, 0) : at;
  };
  const int64_t begin = place(1, 0);
  const int64_t end = std::min(place(2, size), size);
  if (begin > end) return std::nullopt;
  const size_t from = place_of(text, static_cast<size_t>(begin));
  const size_t length = place_of(text.substr(from), static_cast<size_t>(end - begin));
  return Window{text.substr(from, length), begin};
}

Value ends(Interpreter& interpreter, const Value& self, Arguments& arguments, bool end) {
  Run& run = interpreter.run();
  const Parameters given(run, end ? "endswith" : "startswith", arguments,
                         {"prefix", "start", "end"});
  no_names(interpreter, arguments, end ? "endswith" : "startswith");
  const auto window = window_of(run, self, given);
  const auto one = [&](const Value& value) {
    const std::string_view other = text_of(run, value, "startswith");
    return window && (end ? window->text.ends_with(other) : window->text.starts_with(other));
  };
  const List* list = given.need(0).list();
  if (list != nullptr && list->kind == List::Kind::kTuple)
    return Value(std::ranges::any_of(list->items, one));
  return Value(one(given.need(0)));
}

/// Returns the value as HTML, escaped unless it is marked safe.
std::string html_of(Run& run, const Value& value) {
  return value.is_safe() ? std::string(value.text()) : escaped(written(run, value));
}

Value replaced(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Run& run = interpreter.run();
  const Parameters given(run, "replace", arguments, {"old", "new", "count"});
  const std::string_view text = self.text();
  const std::string_view from = given.text(0);
  const std::string as_html = self.is_safe() ? html_of(run, given.need(1)) : "";
  const std::string_view to = self.is_safe() ? as_html : given.text(1);
  int64_t most = given.whole(2, -1);
  std::string made;
  const auto put = [&](std::string_view part) {
    run.work(part.size());
    run.take(made.size() + part.size());
    run.free(made.size() + part.size());
    made += part;
  };
  size_t at = 0;
  while (most != 0) {
    if (from.empty()) {
      put(to);
      --most;
      if (at >= text.size()) return of(interpreter, self, made);
      const size_t size = utf8::length(text[at]);
      put(text.substr(at, size));
      at += size;
      continue;
    }
    const size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    put(text.substr(at, found - at));
    put(to);
    at = found + from.size();
    --most;
  }
  put(text.substr(at));
  return of(interpreter, self, made);
}

Value find_in(Interpreter& interpreter, const Value& self, Arguments& arguments, bool right,
              bool must) {
  Run& run = interpreter.run();
  no_names(interpreter, arguments, "find");
  const Parameters given(run, "find", arguments, {"sub", "start", "end"});
  const std::string_view part = given.text(0);
  const auto window = window_of(run, self, given);
  const size_t at = !window ? std::string_view::npos
                    : right ? window->text.rfind(part)
                            : window->text.find(part);
  if (at == std::string_view::npos) {
    if (must) run.fail("substring not found");
    return Value(int64_t{-1});
  }
  return Value(window->before + static_cast<int64_t>(utf8::count(window->text.substr(0, at))));
}

Value counted(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Run& run = interpreter.run();
  no_names(interpreter, arguments, "count");
  const Parameters given(run, "count", arguments, {"sub", "start", "end"});
  const std::string_view part = given.text(0);
  const auto window = window_of(run, self, given);
  if (!window) return Value(int64_t{0});
  if (part.empty()) return Value(static_cast<int64_t>(utf8::count(window->text) + 1));
  return Value(static_cast<int64_t>(pieces_at(window->text, part, -1, false).size() - 1));
}

Value join_method(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Run& run = interpreter.run();
  const Parameters given(run, "join", arguments, {"iterable"});
  std::string text;
  bool first = true;
  for (const Value& item : interpreter.items(given.need(0))) {
    if (!std::exchange(first, false)) text += self.text();
    text += self.is_safe() ? html_of(run, item) : std::string(text_of(run, item, "join"));
    run.work(self.text().size());
    run.take(text.size());
    run.free(text.size());
  }
  return of(interpreter, self, text);
}

template <class Test>
Value all_of(Interpreter& interpreter, Arguments& arguments, const Value& self, const Test& test) {
  const Parameters none(interpreter.run(), "is...", arguments, {});
  const std::string_view text = self.text();
  bool all = !text.empty();
  for (size_t at = 0; at < text.size() && all;) all = test(utf8::next(text, at));
  return Value(all);
}

bool has_category(char32_t c, uint32_t bits) {
  return (unicode::Unicode::instance().category_bit(c) & bits) != 0;
}

/// Returns whether the character is a digit: decimal, circled, in brackets, superscript or subscript.
bool is_digit(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kOthers[] = {
      {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
      {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
      {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};
  return has_category(c, unicode::bit(unicode::kNd)) ||
         std::ranges::any_of(kOthers,
                             [&](auto& range) { return range.first <= c && c <= range.second; });
}

constexpr BuiltIn kTextMethods[] = {
    {"capitalize", LEVIN_METHOD(return nothing_given(in, arguments, "capitalize",
                                                     of(in, self, capitalized(self.text())));)},
    {"count", counted},
    {"endswith", LEVIN_METHOD(return ends(in, self, arguments, true);)},
    {"find", LEVIN_METHOD(return find_in(in, self, arguments, false, false);)},
    {"index", LEVIN_METHOD(return find_in(in, self, arguments, false, true);)},
    {"isalnum", LEVIN_METHOD(return all_of(in, arguments, self,
                                           [](char32_t c) {
                                             return has_category(
                                                 c, unicode::kLetters | unicode::kNumbers);
                                           });)},
    {"isalpha",
     LEVIN_METHOD(return all_of(in, arguments, self,
                                [](char32_t c) { return has_category(c, unicode::kLetters); });)},
    {"isdigit", LEVIN_METHOD(return all_of(in, arguments, self, is_digit);)},
    {"isspace", LEVIN_METHOD(return all_of(in, arguments, self, is_space);)},
    {"join", join_method},
    {"lower",
     LEVIN_METHOD(return nothing_given(in, arguments, "lower", of(in, self, lower(self.text())));)},
    {"lstrip", LEVIN_METHOD(return stripped(in, self, arguments, true, false);)},
    {"removeprefix",
     LEVIN_METHOD(const Parameters given(in.run(), "removeprefix", arguments, {"prefix"});
                  const auto part = given.text(0);
                  return of(in, self,
                            self.text().starts_with(part) ? self.text().substr(part.size())
                                                          : self.text());)},
    {"removesuffix",
     LEVIN_METHOD(const Parameters given(in.run(), "removesuffix", arguments, {"suffix"});
                  const auto part = given.text(0);
                  return of(in, self,
                            self.text().ends_with(part)
                                ? self.text().substr(0, self.text().size() - part.size())
                                : self.text());)},
    {"replace", replaced},
    {"rfind", LEVIN_METHOD(return find_in(in, self, arguments, true, false);)},
    {"rsplit", LEVIN_METHOD(return split_at(in, self, arguments, true);)},
    {"rstrip", LEVIN_METHOD(return stripped(in, self, arguments, false, true);)},
    {"split", LEVIN_METHOD(return split_at(in, self, arguments, false);)},
    {"splitlines", splitlines},
    {"startswith", LEVIN_METHOD(return ends(in, self, arguments, false);)},
    {"strip", LEVIN_METHOD(return stripped(in, self, arguments, true, true);)},
    {"title", LEVIN_METHOD(return nothing_given(in, arguments, "title",
                                                of(in, self, titled(self.text())));)},
    {"upper", LEVIN_METHOD(return nothing_given(in, arguments, "upper",
                                                of(in, self, upper(self.text())));)}};

}  // namespace

std::span<const BuiltIn> text_methods() { return kTextMethods; }

}  // namespace levin::text::jinja
