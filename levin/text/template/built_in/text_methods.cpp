// Methods of texts.
#include <fmt/format.h>

#include <algorithm>

#include "levin/text/template/built_in/method_tables.h"
#include "levin/text/template/operators.h"
#include "levin/text/template/values/python_text.h"
#include "levin/text/unicode/unicode.h"
#include "levin/text/unicode/utf8.h"

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
      pieces.push_back(strip(text, false, true));
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
      pieces.push_back(strip(text, true, false));
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

Value ends(Interpreter& interpreter, const Value& self, Arguments& arguments, bool end) {
  Run& run = interpreter.run();
  const Parameters given(run, end ? "endswith" : "startswith", arguments,
                         {"prefix", "start", "end"});
  std::string_view text = self.text();
  Value part;
  if (given.has(1)) {
    part = sliced(run, self, given[1], given.has(2) ? given[2] : Value(None{}), Value(None{}));
    text = part.text();
  }
  const auto one = [&](const Value& value) {
    const std::string_view other = text_of(run, value, "startswith");
    return end ? text.ends_with(other) : text.starts_with(other);
  };
  const List* list = given.need(0).list();
  if (list != nullptr && list->kind == List::Kind::kTuple)
    return Value(std::ranges::any_of(list->items, one));
  return Value(one(given.need(0)));
}

Value replaced(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Run& run = interpreter.run();
  const Parameters given(run, "replace", arguments, {"old", "new", "count"});
  const std::string_view text = self.text();
  const std::string_view from = given.text(0);
  const std::string_view to = given.text(1);
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
  const Parameters given(run, "find", arguments, {"sub"});
  run.work(self.text().size());
  const size_t at = right ? self.text().rfind(given.text(0)) : self.text().find(given.text(0));
  if (at == std::string_view::npos) {
    if (must) run.fail("substring not found");
    return Value(int64_t{-1});
  }
  return Value(static_cast<int64_t>(utf8::count(self.text().substr(0, at))));
}

Value counted(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Run& run = interpreter.run();
  const Parameters given(run, "count", arguments, {"sub"});
  const std::string_view part = given.text(0);
  run.work(self.text().size());
  if (part.empty()) return Value(static_cast<int64_t>(utf8::count(self.text()) + 1));
  return Value(static_cast<int64_t>(pieces_at(self.text(), part, -1, false).size() - 1));
}

Value join_method(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Run& run = interpreter.run();
  const Parameters given(run, "join", arguments, {"iterable"});
  std::string text;
  bool first = true;
  for (const Value& item : interpreter.items(given.need(0))) {
    if (!std::exchange(first, false)) text += self.text();
    text += text_of(run, item, "join");
    run.work(self.text().size());
    run.take(text.size());
    run.free(text.size());
  }
  return of(interpreter, self, text);
}

template <class Test>
Value all_of(const Value& self, const Test& test) {
  const std::string_view text = self.text();
  bool all = !text.empty();
  for (size_t at = 0; at < text.size() && all;) all = test(utf8::next(text, at));
  return Value(all);
}

bool has_category(char32_t c, uint32_t bits) {
  return (unicode::Unicode::instance().category_bit(c) & bits) != 0;
}

constexpr Method kTextMethods[] = {
    {"capitalize", LEVIN_METHOD(return nothing_given(in, arguments, "capitalize",
                                                     of(in, self, capitalized(self.text())));)},
    {"count", counted},
    {"endswith", LEVIN_METHOD(return ends(in, self, arguments, true);)},
    {"find", LEVIN_METHOD(return find_in(in, self, arguments, false, false);)},
    {"index", LEVIN_METHOD(return find_in(in, self, arguments, false, true);)},
    {"isalnum", LEVIN_METHOD((void)in; (void)arguments; return all_of(
                                 self,
                                 [](char32_t c) {
                                   return has_category(c, unicode::kLetters | unicode::kNumbers);
                                 });)},
    {"isalpha",
     LEVIN_METHOD((void)in; (void)arguments; return all_of(
                      self, [](char32_t c) { return has_category(c, unicode::kLetters); });)},
    {"isdigit",
     LEVIN_METHOD(
         (void)in; (void)arguments; return all_of(
             self, [](char32_t c) { return has_category(c, unicode::bit(unicode::kNd)); });)},
    {"isspace", LEVIN_METHOD((void)in; (void)arguments; return all_of(self, is_space);)},
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

std::span<const Method> text_methods() { return kTextMethods; }

}  // namespace levin::text::jinja
