#include "levin/text/template/values/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "levin/text/template/callable.h"
#include "levin/text/template/values/run.h"

namespace levin::text::jinja {
namespace {

constexpr size_t kFew = 12;  // items of a dict that are looked through one by one

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

/// Compares a float with an int exactly if both are integers.
int order_of_numbers(const Value& left, const Value& right) {
  const auto compare = [](auto a, auto b) { return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2; };
  const auto l = left.whole();
  const auto r = right.whole();
  if (l && r) return compare(*l, *r);
  const double a = *left.number();
  const double b = *right.number();
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  const auto mixed = [&](int64_t whole, double number) {
    if (std::isnan(number)) return 2;
    if (number >= kLimit) return -1;
    if (number < -kLimit) return 1;
    const auto floor = static_cast<int64_t>(std::floor(number));
    if (whole != floor) return whole < floor ? -1 : 1;
    return number > std::floor(number) ? -1 : 0;
  };
  if (l) return mixed(*l, b);
  if (r) {
    const int turned = mixed(*r, a);
    return turned == 2 ? 2 : -turned;
  }
  return compare(a, b);
}

bool same_kind(const List& left, const List& right) {
  const auto ordered = [](List::Kind kind) {
    return kind == List::Kind::kList || kind == List::Kind::kTuple || kind == List::Kind::kRange;
  };
  return left.kind == right.kind && ordered(left.kind);
}

}  // namespace

Text::~Text() {
  if (run != nullptr) run->free(bytes.size());
}

std::optional<int64_t> Value::whole() const {
  if (const auto* flag = get<bool>()) return *flag ? 1 : 0;
  if (const auto* whole = get<int64_t>()) return *whole;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* number = get<double>()) return *number;
  if (const auto whole = this->whole()) return static_cast<double>(*whole);
  return std::nullopt;
}

std::optional<size_t> Dict::place_of(const Value& key) const {
  if (items.size() <= kFew) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (equal(items[i].first, key)) return i;
    }
    return std::nullopt;
  }
  const auto [begin, end] = places_.equal_range(hash(key));
  for (auto at = begin; at != end; ++at) {
    if (equal(items[at->second].first, key)) return at->second;
  }
  return std::nullopt;
}

const Value* Dict::find(const Value& key) const {
  const auto place = place_of(key);
  return place ? &items[*place].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (items.size() > kFew) {
    return find(Value(std::make_shared<const Text>(std::string(key), false, nullptr)));
  }
  for (const auto& [name, value] : items) {
    if (name.is_text() && name.text() == key) return &value;
  }
  return nullptr;
}

void Dict::put(Value key, Value value) {
  depth = std::max({depth, 1 + depth_of(key), 1 + depth_of(value)});
  if (const auto place = place_of(key)) {
    items[*place].second = std::move(value);
    return;
  }
  items.emplace_back(std::move(key), std::move(value));
  if (items.size() == kFew + 1) {
    for (size_t i = 0; i < items.size(); ++i) places_.emplace(hash(items[i].first), i);
  } else if (items.size() > kFew) {
    places_.emplace(hash(items.back().first), items.size() - 1);
  }
}

void Dict::erase(std::string_view key) {
  Dict rest;
  for (auto& [name, value] : items) {
    if (!name.is_text() || name.text() != key) rest.put(name, value);
  }
  *this = std::move(rest);
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : items) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::put(std::string_view name, Value value) {
  for (auto& [key, held] : items) {
    if (key == name) {
      held = std::move(value);
      return;
    }
  }
  items.emplace_back(name, std::move(value));
}

std::string_view type_name(const Value& value) {
  return std::visit(
      Overloaded{[](const Missing*) -> std::string_view { return "Undefined"; },
                 [](None) -> std::string_view { return "NoneType"; },
                 [](bool) -> std::string_view { return "bool"; },
                 [](int64_t) -> std::string_view { return "int"; },
                 [](double) -> std::string_view { return "float"; },
                 [](const std::shared_ptr<const Text>& text) -> std::string_view {
                   return text->safe ? "Markup" : "str";
                 },
                 [](List* list) -> std::string_view { return list->name; },
                 [](Dict*) -> std::string_view { return "dict"; },
                 [](Namespace*) -> std::string_view { return "Namespace"; },
                 [](Callable* callable) -> std::string_view { return callable->type_name(); },
                 [](Loop*) -> std::string_view { return "LoopContext"; }},
      value.held());
}

bool truth(const Value& value) {
  return std::visit(
      Overloaded{
          [](const Missing*) { return false; }, [](None) { return false; },
          [](bool flag) { return flag; }, [](int64_t whole) { return whole != 0; },
          [](double number) { return number != 0.0; },
          [](const std::shared_ptr<const Text>& text) { return !text->bytes.empty(); },
          [](List* list) { return list->kind == List::Kind::kIterator || !list->items.empty(); },
          [](Dict* dict) { return !dict->items.empty(); }, [](auto*) { return true; }},
      value.held());
}

bool equal(const Value& left, const Value& right) {
  if (left.is_text() && right.is_text()) return left.text() == right.text();
  if (left.number() && right.number()) return order_of_numbers(left, right) == 0;
  if (left.held().index() != right.held().index()) return false;
  if (left.is_undefined() || left.is_none()) return true;
  if (const List* a = left.list()) {
    const List* b = right.list();
    if (a == b) return true;
    return same_kind(*a, *b) && std::ranges::equal(a->items, b->items, equal);
  }
  if (const Dict* a = left.dict()) {
    const Dict* b = right.dict();
    if (a == b) return true;
    return a->items.size() == b->items.size() &&
           std::ranges::all_of(a->items, [&](const auto& item) {
             const Value* other = b->find(item.first);
             return other != nullptr && equal(item.second, *other);
           });
  }
  return left.held() == right.held();  // the same one
}

std::optional<int> order(const Value& left, const Value& right) {
  if (left.number() && right.number()) return order_of_numbers(left, right);
  if (left.is_text() && right.is_text()) {
    // The order of bytes is that of code points.
    const int difference = left.text().compare(right.text());
    return difference < 0 ? -1 : difference > 0 ? 1 : 0;
  }
  const List* a = left.list();
  const List* b = right.list();
  if (a == nullptr || b == nullptr || !same_kind(*a, *b) || a->kind == List::Kind::kRange) {
    return std::nullopt;
  }
  const size_t size = std::min(a->items.size(), b->items.size());
  for (size_t i = 0; i < size; ++i) {
    if (!equal(a->items[i], b->items[i])) return order(a->items[i], b->items[i]);
  }
  return a->items.size() < b->items.size() ? -1 : a->items.size() > b->items.size() ? 1 : 0;
}

bool hashable(const Value& value) {
  if (value.dict() != nullptr) return false;
  const List* list = value.list();
  if (list == nullptr) return true;
  if (list->kind == List::Kind::kTuple) return std::ranges::all_of(list->items, hashable);
  return list->kind == List::Kind::kRange || list->kind == List::Kind::kIterator;
}

size_t hash(const Value& value) {
  if (value.is_text()) return std::hash<std::string_view>()(value.text());
  if (const auto whole = value.whole()) return std::hash<int64_t>()(*whole);
  if (const auto* number = value.get<double>()) {
    const bool whole = std::abs(*number) < 9e18 && *number == std::floor(*number);
    return whole ? std::hash<int64_t>()(static_cast<int64_t>(*number))
                 : std::hash<double>()(*number);
  }
  size_t sum = value.held().index();
  if (const List* list = value.list()) {
    for (const Value& item : list->items) sum = sum * 1000003 + hash(item);
  }
  return sum;
}

int64_t depth_of(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  return 0;
}

}  // namespace levin::text::jinja
