// Looks up a value's attributes and items as jinja2's sandbox does.
#include <fmt/format.h>

#include "levin/base/text/utf8.h"
#include "levin/text/template/built_in/built_in.h"
#include "levin/text/template/interpreter.h"
#include "levin/text/template/values/python_text.h"

namespace levin::text::jinja {
namespace {

/// Does getattr; undefined if there is none.
Value own_attribute(Interpreter& interpreter, const Value& value, std::string_view name) {
  if (const Function::Body body = find_method(value, name)) {
    return Value(
        static_cast<Callable*>(interpreter.run().make<Function>(std::string(name), body, value)));
  }
  if (const auto* space = value.pointer<Namespace>()) {
    const Value* found = space->find(name);
    return found == nullptr ? Value() : *found;
  }
  if (const List* list = value.list(); list != nullptr && list->name == List::kGroup) {
    if (name == "grouper") return list->items[0];
    if (name == "list") return list->items[1];
  }
  if (auto* loop = value.pointer<Loop>()) return loop->attribute(name);
  if (auto* callable = value.pointer<Callable>()) return callable->attribute(interpreter, name);
  return {};
}

Value missing(Run& run, const Value& value, const Value& name) {
  return run.missing(fmt::format("'{} object' has no attribute {}", type_name(value),
                                 name.is_text() ? quoted(name.text()) : written(run, name)));
}

}  // namespace

Value Interpreter::attribute(const Value& value, std::string_view name) {
  fail_if_undefined(run_, value);
  if (!name.starts_with("__")) {
    Value own = own_attribute(*this, value, name);
    if (!own.is_undefined() || own.missing() != nullptr) return own;
  }
  if (const Dict* dict = value.dict()) {
    if (const Value* found = dict->find(name)) return *found;
  }
  return missing(run_, value, run_.text(std::string(name)));
}

Value Interpreter::item(const Value& value, const Value& key) {
  fail_if_undefined(run_, value);
  if (const Dict* dict = value.dict()) {
    if (hashable(key)) {
      if (const Value* found = dict->find(key)) return *found;
    }
  } else if (const auto at = key.whole(); at && (value.is_text() || value.list() != nullptr)) {
    const List* list = value.list();
    const bool indexed = list == nullptr || list->kind < List::Kind::kView;
    const auto size =
        static_cast<int64_t>(list == nullptr ? utf8::count(value.text()) : list->items.size());
    run_.work(list == nullptr ? value.text().size() : 0);
    const int64_t place = *at < 0 ? *at + size : *at;
    if (indexed && place >= 0 && place < size) {
      if (list != nullptr) return list->items[static_cast<size_t>(place)];
      const size_t begin = place_of(value.text(), static_cast<size_t>(place));
      return run_.text(std::string(value.text().substr(begin, utf8::length(value.text()[begin]))),
                       value.is_safe());
    }
  }
  if (key.is_text() && !key.text().starts_with("__")) {
    Value own = own_attribute(*this, value, key.text());
    if (!own.is_undefined() || own.missing() != nullptr) return own;
  }
  return missing(run_, value, key);
}

std::vector<Value> Interpreter::items(const Value& value) {
  std::vector<Value> made;
  if (value.is_text()) {
    const std::string_view text = value.text();
    run_.step(static_cast<int64_t>(text.size()));
    for (size_t at = 0; at < text.size();) {
      const size_t size = utf8::length(text[at]);
      made.push_back(run_.text(std::string(text.substr(at, size))));
      at += size;
    }
    return made;
  }
  if (List* list = value.list()) {
    run_.step(1 + static_cast<int64_t>(list->items.size() / 8));
    const auto begin =
        list->items.begin() +
        static_cast<std::ptrdiff_t>(list->kind == List::Kind::kIterator ? list->next : 0);
    made.assign(begin, list->items.end());
    list->next = list->items.size();
    if (list->failure) std::rethrow_exception(std::exchange(list->failure, nullptr));
    return made;
  }
  if (const Dict* dict = value.dict()) {
    run_.step(1 + static_cast<int64_t>(dict->items.size() / 8));
    for (const auto& [key, held] : dict->items) made.push_back(key);
    return made;
  }
  if (value.is_undefined()) return made;
  run_.fail(fmt::format("'{}' object is not iterable", type_name(value)));
}

}  // namespace levin::text::jinja
