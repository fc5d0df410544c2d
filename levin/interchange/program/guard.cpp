#include "levin/interchange/program/guard.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "levin/base/check.h"

namespace levin::interchange {
namespace {

/// Takes what begins a text.
bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

/// ['name'] or [3], without the quotes.
std::optional<std::string> take_key(std::string_view& text) {
  if (!take(text, "[")) return std::nullopt;
  const bool is_quoted = text.starts_with('\'') || text.starts_with('"');
  const std::string end = is_quoted ? std::string(1, text.front()) + "]" : "]";
  if (is_quoted) text.remove_prefix(1);
  const size_t length = text.find(end);
  if (length == std::string_view::npos) return std::nullopt;
  std::string key(text.substr(0, length));
  text.remove_prefix(length + end.size());
  return key;
}

/// Takes the source at a text's beginning: L['batch']['x'].size()[0]. Nothing if it begins
/// otherwise.
std::optional<GuardSource> take_source(std::string_view& text) {
  if (!take(text, "L")) return std::nullopt;
  GuardSource source;
  while (text.starts_with('[')) {
    const auto key = take_key(text);
    if (!key) return std::nullopt;
    source.input += (source.input.empty() ? "" : ".") + *key;
  }
  const bool is_size = take(text, ".size()"), is_stride = !is_size && take(text, ".stride()");
  if (is_size || is_stride) {
    if (!take(text, "[")) return std::nullopt;
    const auto dim = take_number(text);
    if (!dim || *dim < 0 || !take(text, "]")) return std::nullopt;
    source.kind = is_size ? GuardSource::Kind::kSize : GuardSource::Kind::kStride;
    source.dim = *dim;
    return source;
  }
  source.kind =
      take(text, ".storage_offset()") ? GuardSource::Kind::kOffset : GuardSource::Kind::kNumber;
  return source;
}

constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<=", ">=", "<", ">"};

struct Cut {
  size_t at = std::string_view::npos;
  size_t size = 0;
};

/// The first of some words outside parentheses.
template <size_t N>
Cut first_of(std::string_view text, const std::array<std::string_view, N>& words) {
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '(') ++depth;
    if (text[at] == ')') --depth;
    if (depth != 0) continue;
    for (const std::string_view word : words) {
      if (text.substr(at).starts_with(word)) return {at, word.size()};
    }
  }
  return {};
}

}  // namespace

std::string GuardSource::text() const {
  switch (kind) {
    case Kind::kSize:
      return fmt::format("{}.size({})", input, dim);
    case Kind::kStride:
      return fmt::format("{}.stride({})", input, dim);
    case Kind::kOffset:
      return input + ".storage_offset()";
    case Kind::kNumber:
      break;
  }
  return input;
}

std::optional<Guard> Guard::parse(std::string_view text, const NameOf& name_of) {
  constexpr size_t kLongest = 10'000;  // Python's have a few hundred
  if (text.size() > kLongest) return std::nullopt;
  Guard guard;
  std::string named;  // with symbols for sources
  while (!text.empty()) {
    if (!text.starts_with("L[")) {
      named += text.front();
      guard.text_ += text.front();
      text.remove_prefix(1);
      continue;
    }
    const auto source = take_source(text);
    const auto name = source ? name_of(*source) : std::nullopt;
    if (!name) return std::nullopt;
    named += *name;
    guard.text_ += source->text();
  }
  try {
    if (!guard.add_relations(named)) return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
  return guard;
}

bool Guard::add_relations(std::string_view text) {
  constexpr std::array<std::string_view, 1> kAnd = {" and "};
  while (true) {
    const Cut end = first_of(text, kAnd);
    std::string_view chain = text.substr(0, end.at);
    // 2 <= x <= 8 is two relations.
    Cut cut = first_of(chain, kComparisons);
    if (cut.size == 0) return false;
    Expression left = Expression::parse(chain.substr(0, cut.at));
    while (cut.size > 0) {
      const std::string comparison(chain.substr(cut.at, cut.size));
      chain.remove_prefix(cut.at + cut.size);
      cut = first_of(chain, kComparisons);
      Expression right = Expression::parse(chain.substr(0, cut.at));
      if (!left.is_computable() || !right.is_computable()) return false;
      relations_.push_back({std::move(left), comparison, right});
      left = std::move(right);
    }
    if (end.size == 0) return true;
    text.remove_prefix(end.at + end.size);
  }
}

bool Guard::holds(const Symbols& symbols) const {
  return std::ranges::all_of(relations_, [&](const Relation& relation) {
    const auto left = relation.left.value(symbols), right = relation.right.value(symbols);
    // A division by 0, an overflow.
    if (!left || !right) return false;
    if (relation.comparison == "==") return *left == *right;
    if (relation.comparison == "!=") return *left != *right;
    if (relation.comparison == "<=") return *left <= *right;
    if (relation.comparison == ">=") return *left >= *right;
    return relation.comparison == "<" ? *left < *right : *left > *right;
  });
}

bool Guard::is_trivial() const {
  return std::ranges::all_of(relations_, [](const Relation& relation) {
    return relation.comparison == "==" && relation.left.text() == relation.right.text();
  });
}

std::vector<std::string> Guard::symbols() const {
  std::vector<std::string> names;
  for (const Relation& relation : relations_) {
    for (const Expression* side : {&relation.left, &relation.right}) {
      for (const std::string& name : side->symbols()) {
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
      }
    }
  }
  return names;
}

}  // namespace levin::interchange
