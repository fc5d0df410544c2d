#include "levin/text/template/values/json_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/text/utf8.h"
#include "levin/text/template/operators.h"
#include "levin/text/template/values/python_text.h"

namespace levin::text::jinja {
namespace {

using nlohmann::json;

/// Takes the parser's events; objects keep the order of their keys.
class Reader : public json::json_sax_t {
 public:
  explicit Reader(Run& run) : run_(run) {}

  bool null() override { return put(None{}); }
  bool boolean(bool flag) override { return put(flag); }
  bool number_integer(json::number_integer_t number) override { return put(int64_t{number}); }
  bool number_unsigned(json::number_unsigned_t number) override {
    if (number >> 63 != 0) return refuse();
    return put(static_cast<int64_t>(number));
  }
  bool number_float(json::number_float_t number, const std::string& written) override {
    if (written.find_first_of(".eE") == std::string::npos) return refuse();
    return put(double{number});
  }
  bool string(std::string& text) override { return put(run_.text(std::move(text))); }
  bool binary(json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(true); }
  bool key(std::string& key) override {
    open_.back().keys.push_back(run_.text(std::move(key)));
    return true;
  }
  bool end_object() override {
    Dict* dict = run_.dict();
    Open& last = open_.back();
    for (size_t i = 0; i < last.keys.size(); ++i) run_.put(*dict, last.keys[i], last.values[i]);
    return close(dict);
  }
  bool start_array(size_t) override { return open(false); }
  bool end_array() override { return close(run_.list(std::move(open_.back().values))); }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    problem = fmt::format("is invalid at byte {}; correct it there", position);
    return false;
  }

  Value root;
  std::string problem;

 private:
  struct Open {
    std::vector<Value> keys;
    std::vector<Value> values;
  };
  bool open(bool) {
    open_.emplace_back();
    return true;
  }
  bool close(Value value) {
    open_.pop_back();
    return put(std::move(value));
  }
  bool put(Value value) {
    if (open_.empty()) {
      root = std::move(value);
    } else {
      open_.back().values.push_back(std::move(value));
    }
    return true;
  }
  bool refuse() {
    problem = "holds an integer beyond 2^63; write it as a string";
    return false;
  }

  Run& run_;
  std::vector<Open> open_;
};

class Writer {
 public:
  Writer(Run& run, const JsonOptions& options) : run_(run), options_(options) {}

  std::string text;

  void write(const Value& value) {
    const Run::Deeper deeper(run_);
    run_.step();
    if (value.is_none()) {
      text += "null";
    } else if (value.is_bool()) {
      text += truth(value) ? "true" : "false";
    } else if (value.number()) {
      text += number(value);
    } else if (value.is_text()) {
      write_text(value.text());
    } else if (const List* list = value.list();
               list != nullptr &&
               (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple)) {
      write_list(*list);
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict);
    } else {
      run_.fail(fmt::format("object of type {} is not JSON serializable", type_name(value)));
    }
  }

 private:
  static std::string number(const Value& value) {
    if (const auto whole = value.whole()) return std::to_string(*whole);
    const double number = *value.number();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return written(number);
  }

  void write_text(std::string_view bytes) {
    run_.work(bytes.size());
    text += '"';
    for (size_t at = 0; at < bytes.size();) {
      const char32_t c = utf8::next(bytes, at);
      constexpr std::string_view kPlain = "\"\\\n\r\t\b\f";
      constexpr std::string_view kLetters = "\"\\nrtbf";
      const size_t place = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
      if (place != std::string_view::npos) {
        text += '\\';
        text += kLetters[place];
      } else if (c < 0x20 || (options_.ensure_ascii && c >= 0x7f)) {
        write_escape(static_cast<uint32_t>(c));
      } else {
        utf8::append(text, c);
      }
    }
    text += '"';
  }
  void write_escape(uint32_t c) {
    if (c < 0x10000) {
      text += fmt::format("\\u{:04x}", c);
    } else {
      text += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((c - 0x10000) >> 10),
                          0xdc00 + ((c - 0x10000) & 0x3ff));
    }
  }

  void write_list(const List& list) {
    if (list.items.empty()) {
      text += "[]";
      return;
    }
    text += '[';
    ++level_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      begin_item(i);
      write(list.items[i]);
    }
    end(']');
  }

  void write_dict(const Dict& dict) {
    if (dict.items.empty()) {
      text += "{}";
      return;
    }
    std::vector<std::pair<Value, Value>> items = dict.items;
    if (options_.sort_keys) {
      sort_stably(items, [&](const auto& left, const auto& right) {
        const auto order = jinja::order(left.first, right.first);
        if (!order)
          run_.fail(fmt::format("'<' not supported between keys of type {} and {}",
                                type_name(left.first), type_name(right.first)));
        return *order == -1;
      });
    }
    text += '{';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      begin_item(i);
      write_key(items[i].first);
      text += options_.between_key_and_value;
      write(items[i].second);
    }
    end('}');
  }

  void write_key(const Value& key) {
    if (key.is_text()) {
      write_text(key.text());
    } else if (key.is_none()) {
      text += "\"null\"";
    } else if (key.is_bool()) {
      text += truth(key) ? "\"true\"" : "\"false\"";
    } else if (key.number()) {
      text += '"' + number(key) + '"';
    } else {
      run_.fail(fmt::format("keys of JSON must be str, int, float, bool or None, not {}",
                            type_name(key)));
    }
  }

  void begin_item(size_t place) {
    if (place > 0) text += options_.between_items;
    new_line();
  }
  void end(char bracket) {
    --level_;
    new_line();
    text += bracket;
  }
  void new_line() {
    if (!options_.indent) return;
    text += '\n';
    run_.work(static_cast<size_t>(level_) * options_.indent->size());
    run_.take(static_cast<size_t>(level_) * options_.indent->size());
    run_.free(static_cast<size_t>(level_) * options_.indent->size());
    for (int i = 0; i < level_; ++i) text += *options_.indent;
  }

  Run& run_;
  const JsonOptions& options_;
  int level_ = 0;
};

}  // namespace

Value read_json(Run& run, std::string_view text, std::string_view what) {
  const std::string_view shallow = detail::shallow_json(text);
  LEVIN_CHECK(!shallow.empty() || text.empty(), "text.chat",
              "{} are nested more than {} levels deep", what, detail::kMaxJsonDepth);
  Reader reader(run);
  const bool whole = json::sax_parse(text.begin(), text.end(), &reader);
  LEVIN_CHECK(whole && reader.problem.empty(), "text.chat", "the JSON of {} {}", what,
              reader.problem);
  return reader.root;
}

std::string json_text(Run& run, const Value& value, const JsonOptions& options) {
  Writer writer(run, options);
  writer.write(value);
  return std::move(writer.text);
}

}  // namespace levin::text::jinja
