#include "levin/text/template/operators.h"

#include <fmt/format.h>

#include <algorithm>

#include "levin/base/text/utf8.h"
#include "levin/text/template/interpreter.h"
#include "levin/text/template/values/python_text.h"

namespace levin::text::jinja {
namespace {

[[noreturn]] void refuse(Run& run, std::string_view op, const Value& left, const Value& right) {
  fail_if_undefined(run, left);
  fail_if_undefined(run, right);
  run.fail(fmt::format("unsupported operand types for '{}': {} and {}", op, type_name(left),
                       type_name(right)));
}

Value repeated(Run& run, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (value.is_text()) {
    const std::string_view text = value.text();
    if (text.empty() || count == 0) return run.text("", value.is_safe());
    const size_t size =
        count > (size_t{1} << 40) / text.size() ? size_t{1} << 40 : text.size() * count;
    run.work(size);
    run.take(size);
    run.free(size);
    std::string made;
    made.reserve(size);
    for (size_t i = 0; i < count; ++i) made += text;
    return run.text(std::move(made), value.is_safe());
  }
  const List& list = *value.list();
  if (list.items.empty() || count == 0) return Value(run.list({}, list.kind));
  const size_t size = count > (size_t{1} << 32) ? size_t{1} << 40 : list.items.size() * count;
  run.step(static_cast<int64_t>(size));
  run.take(size * sizeof(Value));
  run.free(size * sizeof(Value));
  std::vector<Value> items;
  items.reserve(size);
  for (size_t i = 0; i < count; ++i)
    items.insert(items.end(), list.items.begin(), list.items.end());
  return Value(run.list(std::move(items), list.kind));
}

bool is_sequence(const Value& value) {
  const List* list = value.list();
  return value.is_text() ||
         (list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple));
}

Value joined(Run& run, const Value& left, const Value& right) {
  if (left.is_text() && right.is_text()) {
    const bool safe = left.is_safe() || right.is_safe();
    const auto part = [&](const Value& value) {
      return safe && !value.is_safe() ? escaped(value.text()) : std::string(value.text());
    };
    run.work(left.text().size() + right.text().size());
    return run.text(part(left) + part(right), safe);
  }
  const List* a = left.list();
  const List* b = right.list();
  if (a == nullptr || b == nullptr || a->kind != b->kind || !is_sequence(left))
    refuse(run, "+", left, right);
  std::vector<Value> items;
  run.step(static_cast<int64_t>(a->items.size() + b->items.size()));
  items.reserve(a->items.size() + b->items.size());
  items = a->items;
  items.insert(items.end(), b->items.begin(), b->items.end());
  return Value(run.list(std::move(items), a->kind));
}

struct Places {
  int64_t begin, end, step;
};

/// Follows slice.indices of Python.
Places places(Run& run, int64_t size, const Value& begin, const Value& end, const Value& step) {
  const auto bound = [&](const Value& value) -> std::optional<int64_t> {
    if (value.is_none()) return std::nullopt;
    const auto whole = value.whole();
    if (!whole) {
      fail_if_undefined(run, value);
      run.fail(fmt::format("slice indices must be integers or None, not {}", type_name(value)));
    }
    return whole;
  };
  const int64_t by = bound(step).value_or(1);
  if (by == 0) run.fail("slice step cannot be zero");
  const auto clamped = [&](std::optional<int64_t> place, int64_t otherwise) {
    if (!place) return otherwise;
    int64_t at = *place;
    if (at < 0) at = at < -size ? -1 : at + size;
    if (by < 0) return std::clamp<int64_t>(at, -1, size - 1);
    return *place < -size ? int64_t{0} : std::clamp<int64_t>(at, 0, size);
  };
  if (by < 0) {
    const auto from = bound(begin);
    const auto to = bound(end);
    return {clamped(from, size - 1), clamped(to, -1), by};
  }
  return {clamped(bound(begin), 0), clamped(bound(end), size), by};
}

}  // namespace

void fail_if_undefined(Run& run, const Value& value) {
  if (!value.is_undefined()) return;
  run.fail(fmt::format("{}",
                       value.missing() == nullptr ? "a value is undefined" : value.missing()->why));
}

Value unary(Run& run, std::string_view op, const Value& value) {
  if (const auto made = signed_number(run, op, value)) return *made;
  fail_if_undefined(run, value);
  run.fail(fmt::format("bad operand type for unary '{}': {}", op, type_name(value)));
}

Value binary(Run& run, std::string_view op, const Value& left, const Value& right) {
  if (left.number() && right.number()) return arithmetic(run, op, left, right);
  fail_if_undefined(run, left);
  if (op == "%" && left.is_text())
    return run.text(percent_format(run, left.text(), right), left.is_safe());
  if (op == "+") return joined(run, left, right);
  if (op == "*") {
    if (is_sequence(left) && right.whole()) return repeated(run, left, *right.whole());
    if (is_sequence(right) && left.whole()) return repeated(run, right, *left.whole());
  }
  refuse(run, op, left, right);
}

bool less(Run& run, const Value& left, const Value& right) {
  const auto difference = order(left, right);
  if (!difference) refuse(run, "<", left, right);
  return *difference == -1;
}

bool compared(Run& run, std::string_view op, const Value& left, const Value& right) {
  run.work(left.is_text() ? left.text().size() : 0);
  if (op == "in") return contains(run, right, left);
  if (op == "not in") return !contains(run, right, left);
  const List* list = left.list();
  if (list != nullptr) run.step(static_cast<int64_t>(list->items.size()));
  if (op == "==") return equal(left, right);
  if (op == "!=") return !equal(left, right);
  const auto difference = order(left, right);
  if (!difference) refuse(run, op, left, right);
  if (*difference == 2) return false;
  if (op == "<") return *difference < 0;
  if (op == "<=") return *difference <= 0;
  if (op == ">") return *difference > 0;
  return *difference >= 0;
}

bool contains(Run& run, const Value& whole, const Value& part) {
  if (whole.is_text()) {
    run.work(whole.text().size());
    if (!part.is_text()) {
      fail_if_undefined(run, part);
      run.fail(fmt::format("'in <str>' requires a str on its left, not {}", type_name(part)));
    }
    return whole.text().find(part.text()) != std::string_view::npos;
  }
  if (const Dict* dict = whole.dict()) {
    if (!hashable(part)) run.fail(fmt::format("unhashable type: '{}'", type_name(part)));
    return dict->find(part) != nullptr;
  }
  if (List* list = whole.list()) {
    const size_t from = list->kind == List::Kind::kIterator ? list->next : 0;
    for (size_t i = from; i < list->items.size(); ++i) {
      run.step();
      list->next = i + 1;
      if (equal(list->items[i], part)) return true;
    }
    if (list->failure) std::rethrow_exception(std::exchange(list->failure, nullptr));
    return false;
  }
  if (whole.is_undefined()) return false;
  run.fail(fmt::format("argument of type '{}' is not iterable", type_name(whole)));
}

Value sliced(Run& run, const Value& value, const Value& begin, const Value& end,
             const Value& step) {
  fail_if_undefined(run, value);
  const List* list = value.list();
  if (!is_sequence(value) && (list == nullptr || list->kind != List::Kind::kRange)) {
    run.fail(fmt::format("'{}' object cannot be sliced", type_name(value)));
  }
  const auto size =
      static_cast<int64_t>(value.is_text() ? utf8::count(value.text()) : list->items.size());
  const Places at = places(run, size, begin, end, step);
  run.step(1 + size / 64);
  if (value.is_text() && at.step == 1) {
    if (at.end <= at.begin) return run.text("", value.is_safe());
    const std::string_view text = value.text();
    const size_t from = place_of(text, static_cast<size_t>(at.begin));
    const size_t count = place_of(text.substr(from), static_cast<size_t>(at.end - at.begin));
    return run.text(std::string(text.substr(from, count)), value.is_safe());
  }
  std::vector<int64_t> taken;
  for (int64_t i = at.begin; at.step > 0 ? i < at.end : i > at.end;) {
    taken.push_back(i);
    if (__builtin_add_overflow(i, at.step, &i)) break;
  }
  run.step(static_cast<int64_t>(taken.size()));
  if (value.is_text()) {
    std::u32string codes;
    for (size_t i = 0; i < value.text().size();) codes += utf8::next(value.text(), i);
    run.work(codes.size() * 4);
    std::string text;
    for (const int64_t i : taken) utf8::append(text, codes[static_cast<size_t>(i)]);
    return run.text(std::move(text), value.is_safe());
  }
  std::vector<Value> items;
  items.reserve(taken.size());
  for (const int64_t i : taken) items.push_back(list->items[static_cast<size_t>(i)]);
  return Value(run.list(std::move(items), list->kind));
}

}  // namespace levin::text::jinja
