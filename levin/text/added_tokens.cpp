#include "levin/text/added_tokens.h"

#include <algorithm>

#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text {
namespace {

using unicode::Unicode;

bool is(std::string_view text, size_t at, uint32_t flag) {
  return Unicode::instance().is(utf8::next(text, at), flag);
}

/// A token that is a word of its own has none of \w beside it.
bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is(text, utf8::before(text, begin), unicode::kPlainWord)) return false;
  return end == text.size() || !is(text, end, unicode::kPlainWord);
}

size_t before_spaces(std::string_view text, size_t at) {
  while (at > 0) {
    const size_t last = utf8::before(text, at);
    if (!is(text, last, unicode::kSpace)) break;
    at = last;
  }
  return at;
}

size_t behind_spaces(std::string_view text, size_t at) {
  while (at < text.size() && is(text, at, unicode::kSpace)) at += utf8::length(text[at]);
  return at;
}

}  // namespace

AddedTokens::Finder::Finder(const Vocabulary& patterns) : tree(patterns) {
  patterns.for_each([&](std::string_view pattern, int32_t) {
    may_begin[static_cast<uint8_t>(pattern.front())] = true;
  });
}

void AddedTokens::put(AddedToken token, const Vocabulary& vocabulary,
                      const Normalizer& normalizer) {
  if (token.content.empty()) return;
  const auto known = by_content_.find(token.content);
  if (known != by_content_.end() && by_id_.at(known->second).token == token) return;
  int32_t id = find(token.content);
  if (id < 0) id = vocabulary.find(token.content);
  if (id < 0) {
    id = std::max(static_cast<int32_t>(vocabulary.size()), greatest_ + 1);
  }
  std::string pattern = token.content;
  if (token.normalized && normalizer) {
    WorkingText text;
    text.reset(token.content, 0, normalizer.needs_origin);
    normalizer.apply(text);
    pattern = std::string(text.text());
    if (pattern.empty()) {
      log::warn("the added token '{}' is empty after normalization, so it never matches",
                printable(token.content));
    }
  }
  greatest_ = std::max(greatest_, id);
  if (token.special) special_[token.content] = true;
  by_content_[token.content] = id;
  by_id_[id] = {std::move(token), std::move(pattern)};
}

void AddedTokens::finish() {
  std::array<Vocabulary, 2> patterns;
  for (const auto& [id, entry] : by_id_) {
    const bool normalized = entry.token.normalized;
    if (!entry.pattern.empty()) patterns[normalized ? 1 : 0].add(entry.pattern, id);
  }
  for (size_t i = 0; i < 2; ++i) {
    finders_[i] = patterns[i].size() == 0 ? nullptr : std::make_unique<Finder>(patterns[i]);
  }
}

/// Returns the leftmost match; the longest of several that begin there.
std::optional<AddedTokens::Match> AddedTokens::next(const Finder& finder, std::string_view text,
                                                    size_t from) {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!finder.may_begin[static_cast<uint8_t>(text[begin])]) continue;
    int32_t node = PrefixTree::kRoot;
    std::optional<Match> longest;
    for (size_t at = begin; at < text.size(); ++at) {
      node = finder.tree.step(node, text[at]);
      if (node == PrefixTree::kNone) break;
      if (const int32_t id = finder.tree.id(node); id >= 0) longest = {id, begin, at + 1};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

void AddedTokens::find(std::string_view text, Of of, Sought sought,
                       std::vector<Piece>& pieces) const {
  const auto put = [&](size_t begin, size_t end, int32_t token) {
    pieces.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end), token});
  };
  const Finder* const finder =
      sought == Sought::kNone ? nullptr : finders_[static_cast<size_t>(of)].get();
  size_t done = 0;
  for (size_t from = 0; finder && from < text.size();) {
    const auto match = next(*finder, text, from);
    if (!match) break;
    from = match->end;
    const AddedToken& token = by_id_.at(match->id).token;
    if (sought == Sought::kPlain && is_special(token.content)) continue;
    if (token.single_word && !stands_alone(text, match->begin, match->end)) continue;
    size_t begin = match->begin;
    size_t end = match->end;
    if (token.lstrip) begin = std::max(before_spaces(text, begin), done);
    if (token.rstrip) end = behind_spaces(text, end);
    if (done < begin) put(done, begin, -1);
    // The token before may have taken all of this one with its white space.
    if (begin < end) put(begin, end, match->id);
    done = std::max(done, end);
  }
  if (done != text.size()) put(done, text.size(), -1);
}

int32_t AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? Vocabulary::kNone : found->second;
}

const AddedToken* AddedTokens::token(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second.token;
}

std::string_view AddedTokens::decoded(int32_t id) const {
  const Entry& entry = by_id_.at(id);
  return entry.token.normalized ? entry.pattern : entry.token.content;
}

bool AddedTokens::is_special(std::string_view content) const {
  return special_.contains(std::string(content));
}

std::vector<std::pair<int32_t, AddedToken>> AddedTokens::all() const {
  std::vector<std::pair<int32_t, AddedToken>> tokens;
  for (const auto& [id, entry] : by_id_) tokens.emplace_back(id, entry.token);
  std::ranges::sort(tokens, {}, [](const auto& one) { return one.first; });
  return tokens;
}

}  // namespace levin::text
