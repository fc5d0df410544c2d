#include "levin/text/control_tokens.h"

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/text/template/values/python_text.h"
#include "levin/text/tokenizer_parts.h"

namespace levin::text {
namespace {

// U+F0000 and U+F0001, which are for private use.
constexpr std::string_view kMarkBegin = "\xf3\xb0\x80\x80";
constexpr std::string_view kMarkEnd = "\xf3\xb0\x80\x81";

Vocabulary control_tokens(const AddedTokens& added,
                          const std::optional<std::vector<std::string>>& named,
                          std::string_view literals) {
  const auto is_control = [&](const AddedToken& token) {
    if (token.special) return true;
    if (named) return std::ranges::count(*named, token.content) > 0;
    return literals.find(token.content) != std::string_view::npos &&
           !jinja::strip(token.content).empty();
  };
  Vocabulary tokens;
  for (const auto& [id, token] : added.all()) {
    if (is_control(token)) tokens.add(token.content, id);
  }
  return tokens;
}

}  // namespace

ControlTokens::ControlTokens(const AddedTokens& added,
                             const std::optional<std::vector<std::string>>& named,
                             std::string_view literals)
    : tree_(control_tokens(added, named, literals)) {}

std::string ControlTokens::marked(jinja::Run& run, std::string_view text) const {
  std::string plain(text);
  replace_all(plain, kMarkBegin, "");
  replace_all(plain, kMarkEnd, "");
  run.work(plain.size());
  std::string made;
  for (size_t at = 0; at < plain.size();) {
    size_t end = at;
    int32_t node = PrefixTree::kRoot;
    for (size_t i = at; i < plain.size() && node != PrefixTree::kNone; ++i) {
      node = tree_.step(node, plain[i]);
      if (node != PrefixTree::kNone && tree_.id(node) >= 0) end = i + 1;
    }
    if (end == at) {
      made += plain[at++];
      continue;
    }
    made += kMarkBegin;
    made.append(plain, at, end - at);
    made += kMarkEnd;
    at = end;
  }
  return made;
}

jinja::Value ControlTokens::marked(jinja::Run& run, const jinja::Value& value) const {
  if (value.is_text()) return run.text(marked(run, value.text()));
  if (const jinja::Dict* dict = value.dict()) {
    jinja::Dict* made = run.dict();
    for (const auto& [key, item] : dict->items) run.put(*made, key, marked(run, item));
    return jinja::Value(made);
  }
  if (const jinja::List* list = value.list()) {
    std::vector<jinja::Value> items;
    for (const jinja::Value& item : list->items) items.push_back(marked(run, item));
    return jinja::Value(run.list(std::move(items)));
  }
  return value;
}

std::vector<MarkedPiece> marked_pieces(std::string_view text, const AddedTokens& added) {
  std::vector<MarkedPiece> pieces;
  size_t done = 0;
  const auto put_plain = [&](size_t end) { pieces.push_back({text.substr(done, end - done)}); };
  for (size_t at = 0; (at = text.find(kMarkBegin.substr(0, 3), at)) != std::string_view::npos;) {
    const std::string_view mark = text.substr(at, kMarkBegin.size());
    if (mark != kMarkBegin && mark != kMarkEnd) {
      ++at;
      continue;
    }
    put_plain(at);
    const size_t inside = at + mark.size();
    const size_t end = mark == kMarkBegin ? text.find(kMarkEnd, inside) : std::string_view::npos;
    const std::string_view token = text.substr(inside, end - inside);
    at = inside;
    if (end != std::string_view::npos && added.find(token) >= 0) {
      pieces.push_back({token, true});
      at = end + kMarkEnd.size();
    }
    done = at;
  }
  put_plain(text.size());
  return pieces;
}

/// Follows transformers: each piece behind the first one is encoded behind a line break, so that no
/// blank is put before it, and the line break's tokens are dropped.
Encoding TokenizerParts::encode_marked(std::string& text, const EncodeOptions& options,
                                       EncodeMemory& memory) const {
  const auto draft_of = [&](std::string_view part, bool is_control) {
    EncodeOptions plain = options;
    plain.add_special_tokens = false;
    plain.split_added_tokens = is_control;
    std::vector<Draft> drafts;
    drafts.push_back(encode_part(part, 0, plain, memory));
    if (post_processor) post_processor->process_last(drafts, false);
    Draft whole;
    whole.tracked = options.offsets != OffsetUnit::kNone;
    for (Draft& draft : drafts) join(whole, std::move(draft));
    return whole;
  };
  const std::vector<int32_t> newline = draft_of("\n", false).own.ids;
  std::string shown;
  Draft whole;
  whole.tracked = options.offsets != OffsetUnit::kNone;
  int32_t words = 0;
  const auto put = [&](Draft draft, int32_t shift) {
    int32_t next = words;
    const int32_t first = draft.own.word_ids.empty() ? 0 : draft.own.word_ids.front();
    for (int32_t& word : draft.own.word_ids) {
      if (word >= 0) next = std::max(next, (word += words - first) + 1);
    }
    words = next;
    for (Offset& offset : draft.own.offsets) {
      offset = {offset.begin + shift, offset.end + shift};
    }
    join(whole, std::move(draft));
  };
  bool is_first = true;
  for (const MarkedPiece& piece : marked_pieces(text, added)) {
    const auto at = static_cast<int32_t>(
        options.offsets == OffsetUnit::kCodePoints ? utf8::count(shown) : shown.size());
    shown += piece.text;
    if (std::exchange(is_first, false)) {
      put(draft_of(piece.text, false), 0);
      continue;
    }
    if (piece.text.empty()) continue;
    Draft draft = draft_of("\n" + std::string(piece.text), piece.is_control);
    int32_t shift = at - 1;
    const std::vector<int32_t>& ids = draft.own.ids;
    if (ids.size() >= newline.size() &&
        std::ranges::equal(newline, std::span(ids).first(newline.size()))) {
      truncate(draft, ids.size() - newline.size(), 0, Side::kLeft);
      draft.overflowing.clear();
    } else {
      draft = draft_of(piece.text, piece.is_control);
      shift = at;
    }
    LEVIN_CHECK(!piece.is_control || std::ranges::count(draft.own.ids, added.find(piece.text)) == 0,
                "text.chat",
                "'{}' in a message cannot be encoded as plain text: the tokenizer turns that text "
                "into the control token of the same name; remove it from the message",
                printable(piece.text));
    put(std::move(draft), shift);
  }
  text = std::move(shown);
  std::vector<Draft> drafts;
  drafts.push_back(std::move(whole));
  if (truncation) truncate_all(drafts, *truncation, false);
  return finished(std::move(drafts.front()));
}

}  // namespace levin::text
