// Filters that give texts, and those of values of any kind.
#include <fmt/format.h>

#include <algorithm>

#include "levin/base/text/utf8.h"
#include "levin/text/template/built_in/built_in.h"
#include "levin/text/template/built_in/filter_tables.h"
#include "levin/text/template/operators.h"
#include "levin/text/template/values/json_text.h"
#include "levin/text/template/values/python_text.h"

namespace levin::text::jinja {
namespace {

Value text(Interpreter& in, const Value& v, std::string made) {
  return in.run().text(std::move(made), v.is_safe());
}

/// str(value) on which a method of str is called, by which the filter of the name is done.
Value by_method(Interpreter& in, const Value& v, Arguments& arguments, std::string_view method,
                bool plain) {
  const Value self = in.run().text(written(in.run(), v), v.is_safe() && !plain);
  return find_method(self, method)(in, self, arguments);
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
    } else if (!given[1].whole()) {
      // Python writes a text before it looks at the indent.
      if (!v.is_text())
        run.fail(fmt::format("'tojson' wants an int for 'indent', got {}", type_name(given[1])));
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

Value indent(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "indent", arguments, {"width", "first", "blank"});
  std::string by;
  if (given.has(0) && given[0].is_text()) {
    by = std::string(given[0].text());
  } else {
    by = std::string(static_cast<size_t>(std::clamp<int64_t>(given.whole(0, 4), 0, 4096)), ' ');
  }
  // Lines are Python's splitlines(), of the text with a line feed behind it.
  const Value whole = run.text(std::string(text_of(run, v, "indent")) + "\n");
  Arguments none;
  const Value lines = find_method(whole, "splitlines")(in, whole, none);
  std::string made;
  bool first = true;
  for (const Value& item : in.items(lines)) {
    const std::string_view line = item.text();
    if (!first) made += '\n';
    if (first ? given.flag(1, false) : (!line.empty() || given.flag(2, false))) made += by;
    made += line;
    run.work(by.size() + line.size());
    run.take(made.size());
    run.free(made.size());
    first = false;
  }
  return text(in, v, std::move(made));
}

Value center(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "center", arguments, {"width"});
  const std::string inner = written(run, v);
  const int64_t width = given.whole(0, 80);
  const int64_t blanks = std::max<int64_t>(width - static_cast<int64_t>(utf8::count(inner)), 0);
  run.work(static_cast<size_t>(blanks));
  run.take(static_cast<size_t>(blanks));
  run.free(static_cast<size_t>(blanks));
  // Python's str.center: if the blanks are odd, the left side has one more if the width is odd too.
  const int64_t left = blanks / 2 + (blanks & width & 1);
  return text(in, v,
              std::string(static_cast<size_t>(left), ' ') + inner +
                  std::string(static_cast<size_t>(blanks - left), ' '));
}

Value truncate_text(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = given.whole(0, 255);
  const bool has_leeway = given.has(3) && !given[3].is_none();
  const int64_t leeway = has_leeway ? given.whole(3, 0) : 5;
  const Value end = given.has(2) ? given[2] : run.text("...");
  const auto end_size = static_cast<int64_t>(utf8::count(text_of(run, end, "truncate")));
  if (length < end_size || leeway < 0) run.fail("truncate wants a length not below that of 'end'");
  if (size_of(run, v, "truncate") - leeway <= length) return v;
  text_of(run, v, "truncate");
  Value part = sliced(run, v, Value(None{}), Value(length - end_size), Value(None{}));
  if (!given.flag(1, false)) {
    const std::string_view cut = part.text();
    part = run.text(std::string(cut.substr(0, cut.rfind(' '))), part.is_safe());
  }
  return binary(run, "+", part, end);
}

std::string url_quoted(Run& run, const Value& v, bool in_query) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string made;
  for (const char c : written(run, v)) {
    const auto byte = static_cast<uint8_t>(c);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
        c == '.' || c == '-' || c == '~' || (c == '/' && !in_query)) {
      made += c;
    } else if (c == ' ' && in_query) {
      made += '+';
    } else {
      made += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  run.work(made.size());
  return made;
}

/// Encodes a string, or the pairs of a dict or a list.
Value urlencode(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "urlencode", arguments, {});
  const bool has_items = v.is_undefined() || v.list() != nullptr || v.dict() != nullptr;
  if (!has_items) return run.text(url_quoted(run, v, false));
  std::string made;
  const auto put = [&](const Value& key, const Value& value) {
    if (!made.empty()) made += '&';
    made += url_quoted(run, key, true) + "=" + url_quoted(run, value, true);
  };
  if (const Dict* dict = v.dict()) {
    for (const auto& [key, value] : dict->items) put(key, value);
  } else {
    for (const Value& item : in.items(v)) {
      const std::vector<Value> both = in.items(item);
      if (both.size() != 2) run.fail("urlencode wants pairs");
      put(both[0], both[1]);
    }
  }
  return run.text(std::move(made));
}

Value xmlattr(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "xmlattr", arguments, {"autospace"});
  fail_if_undefined(run, v);
  if (v.dict() == nullptr) run.fail(fmt::format("xmlattr wants a dict, got {}", type_name(v)));
  const auto as_html = [&](const Value& value) {
    return value.is_safe() ? std::string(value.text()) : escaped(written(run, value));
  };
  std::string made;
  for (const auto& [key, value] : v.dict()->items) {
    if (value.is_none() || value.is_undefined()) continue;
    const std::string_view name = text_of(run, key, "xmlattr");
    for (size_t at = 0; at < name.size();) {
      const char32_t c = utf8::next(name, at);
      if (c == '/' || c == '>' || c == '=' || is_space(c)) {
        run.fail(fmt::format("'{}' is not an attribute name", name));
      }
    }
    if (!made.empty() || given.flag(0, true)) made += ' ';
    made += as_html(key) + "=\"" + as_html(value) + '"';
    run.work(made.size());
  }
  return run.text(std::move(made));
}

/// Upper case behind white space and "-({[<", lower case elsewhere; str.title has another idea of a word.
std::string with_titles(std::string_view text) {
  std::string made;
  for (size_t begin = 0; begin < text.size();) {
    const auto is_border = [&](size_t at) {
      const char32_t c = utf8::next(text, at);
      return is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                             std::string_view::npos);
    };
    size_t end = begin;
    const bool border = is_border(begin);
    while (end < text.size() && is_border(end) == border) end += utf8::length(text[end]);
    const std::string_view word = text.substr(begin, end - begin);
    const size_t first = border ? word.size() : utf8::length(word.front());
    made += border ? std::string(word) : upper(word.substr(0, first)) + lower(word.substr(first));
    begin = end;
  }
  return made;
}

constexpr BuiltIn kTextFilters[] = {
    {"center", center},
    {"truncate", truncate_text},
    {"urlencode", urlencode},
    {"xmlattr", xmlattr},
    {"d", default_},
    {"default", default_},
    {"indent", indent},
    {"replace", replace},
    {"tojson", tojson},
    {"trim", trim},
    LEVIN_FILTER("attr", const Parameters given(in.run(), "attr", arguments, {"name"});
                 // A dict has only methods as attributes, its items are not.
                 const bool is_item = v.dict() != nullptr && !find_method(v, given.text(0));
                 return is_item ? Value() : in.attribute(v, given.text(0))),
    LEVIN_PLAIN_FILTER("capitalize", text(in, v, capitalized(written(in.run(), v)))),
    LEVIN_PLAIN_FILTER(
        "e",
        in.run().text(v.is_safe() ? std::string(v.text()) : escaped(written(in.run(), v)), true)),
    LEVIN_PLAIN_FILTER(
        "escape",
        in.run().text(v.is_safe() ? std::string(v.text()) : escaped(written(in.run(), v)), true)),
    LEVIN_PLAIN_FILTER("forceescape", in.run().text(escaped(written(in.run(), v)), true)),
    LEVIN_FILTER("format",
                 return in.run().text(percent_format(in.run(), written(in.run(), v),
                                                     Value(in.run().tuple(arguments.positional))))),
    LEVIN_PLAIN_FILTER("lower", text(in, v, lower(written(in.run(), v)))),
    LEVIN_PLAIN_FILTER("safe", in.run().text(written(in.run(), v), true)),
    LEVIN_PLAIN_FILTER("string", v.is_text() ? v : in.run().text(written(in.run(), v))),
    LEVIN_PLAIN_FILTER("title", text(in, v, with_titles(written(in.run(), v)))),
    LEVIN_PLAIN_FILTER("upper", text(in, v, upper(written(in.run(), v))))};

}  // namespace

std::span<const BuiltIn> text_filters() { return kTextFilters; }

}  // namespace levin::text::jinja
