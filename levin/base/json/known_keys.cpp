#include "levin/base/json/known_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "levin/base/json.h"
#include "levin/base/log.h"
#include "levin/base/options.h"

namespace levin::detail {
namespace {

using nlohmann::json;

constexpr std::string_view kSpace = " \t\r";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

/// Takes what stands before the mark away from the text; all of it where there is no mark.
std::string_view take_until(std::string_view& text, std::string_view marks) {
  const size_t end = std::min(text.find_first_of(marks), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return trimmed(taken);
}

json parsed(std::string_view text) {
  return json::parse(shallow_json(text), nullptr, /*allow_exceptions=*/false);
}

/// A list of levin's own that cannot be read is a programmer's mistake.
void check_line(bool is_sound, const std::string& line) {
  if (!is_sound) throw std::logic_error("no line of a list of keys: " + line);
}

}  // namespace

KnownKeys::KnownKeys(std::initializer_list<std::string_view> lists) {
  for (std::string_view list : lists) {
    while (!list.empty()) {
      std::string_view line = take_until(list, "\n");
      line = take_until(line, "#");
      if (!line.empty()) add(line);
    }
  }
}

void KnownKeys::add(std::string_view line) {
  const std::string whole(line);
  const std::string_view word = take_until(line, kSpace);
  if (word == "only") {
    const std::string key(take_until(line, "="));
    Rule rule{Verdict::kHarmless, {}};
    while (!line.empty()) rule.only.emplace_back(take_until(line, "|"));
    const bool is_json = std::ranges::all_of(
        rule.only, [](const std::string& value) { return !parsed(value).is_discarded(); });
    check_line(is_json && !rule.only.empty() && !key.empty(), whole);
    rules_[key] = std::move(rule);
    return;
  }
  const Verdict verdict = word == "read"       ? Verdict::kRead
                          : word == "harmless" ? Verdict::kHarmless
                          : word == "refused"  ? Verdict::kRefused
                                               : Verdict::kUnknown;
  check_line(verdict != Verdict::kUnknown && !trimmed(line).empty(), whole);
  for (line = trimmed(line); !line.empty(); line = trimmed(line))
    rules_[std::string(take_until(line, kSpace))] = {verdict, {}};
}

KnownKeys::Answer KnownKeys::judge(std::string_view key, std::string_view value) const {
  const auto found = rules_.find(key);
  if (found == rules_.end()) return {};
  const Rule& rule = found->second;
  const json came = parsed(value);
  const auto equals = [&](const std::string& taken) { return parsed(taken) == came; };
  const bool is_refused = rule.verdict == Verdict::kRefused ||
                          (!rule.only.empty() && std::ranges::none_of(rule.only, equals));
  if (came.is_null() || !is_refused)
    return {rule.verdict == Verdict::kRead ? Verdict::kRead : Verdict::kHarmless, {}};
  return {Verdict::kRefused,
          rule.only.empty() ? "no such key" : fmt::format("{}", fmt::join(rule.only, " or "))};
}

std::vector<std::string> KnownKeys::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, rule] : rules_) keys.push_back(key);
  return keys;
}

void warn_of_unknown_keys(const std::string& origin, const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  std::vector<std::string> names;
  for (const std::string& key : keys) names.push_back(printable(key));
  log::warn("{} has keys that levin does not know and ignores: {}; check whether they matter",
            origin, fmt::join(names, ", "));
}

}  // namespace levin::detail
