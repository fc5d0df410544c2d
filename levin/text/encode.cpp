// A text's way: added tokens are found, what is between them is normalized, split and tokenized, and special
// tokens are put around.
#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/text/utf8.h"
#include "levin/text/tokenizer_parts.h"
#include "levin/text/unicode/byte_letters.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text {
namespace {

constexpr size_t kLongest = 1U << 30;  // bytes of a text, which may grow while it is processed
/// Least capacity of a list of tokens. glibc keeps freed blocks below 128 bytes unmerged until a large block is
/// requested, and then merges all of them while other threads wait.
constexpr size_t kLeastRoom = 32;

/// White space and the letter that stands for a blank at both ends.
Draft::Blanks blanks_of(std::string_view token) {
  const auto is_blank = [&](size_t at) {
    const char32_t c = utf8::next(token, at);
    return c == byte_letter(' ') || unicode::Unicode::instance().is(c, unicode::kSpace);
  };
  const auto limited = [](size_t count) {
    return static_cast<uint16_t>(std::min<size_t>(count, 0xffff));
  };
  size_t leading = 0;
  for (size_t at = 0; at < token.size() && is_blank(at); at += utf8::length(token[at])) ++leading;
  size_t trailing = 0;
  for (size_t end = token.size(); end > 0; ++trailing) {
    end = utf8::before(token, end);
    if (!is_blank(end)) break;
  }
  return {limited(leading), limited(trailing)};
}

/// Turns bytes into code points. A place beyond the text stays unchanged.
void count_code_points(std::string_view text, std::vector<uint32_t>& numbers,
                       std::span<Offset> offsets) {
  const bool ascii =
      std::ranges::none_of(text, [](char c) { return static_cast<uint8_t>(c) >= 0x80; });
  if (ascii || offsets.empty()) return;
  numbers.resize(text.size());
  uint32_t number = ~uint32_t{0};
  for (size_t at = 0; at < text.size(); ++at) {
    number += !utf8::is_inner(text[at]);
    numbers[at] = number;
  }
  for (Offset& offset : offsets) {
    const auto begin = static_cast<size_t>(offset.begin);
    const auto end = static_cast<size_t>(offset.end);
    if (begin >= text.size()) continue;
    const uint32_t first = numbers[begin];
    uint32_t behind = first + 2;
    if (end < text.size()) {
      behind = numbers[end];
    } else if (end - 1 < text.size()) {
      behind = numbers[end - 1] + 1;
    }
    offset = {static_cast<int32_t>(first), static_cast<int32_t>(behind)};
  }
}

}  // namespace

void TokenizerParts::find_blanks() {
  if (!post_processor || !post_processor->trims()) return;
  constexpr int32_t kMost = 1 << 22;  // ids beyond are looked up when they come
  model->vocabulary().for_each([&](std::string_view token, int32_t id) {
    if (id >= kMost) return;
    if (static_cast<size_t>(id) >= blanks.size()) blanks.resize(static_cast<size_t>(id) + 1);
    blanks[static_cast<size_t>(id)] = blanks_of(token);
  });
}

TokenizerParts::Loan::Loan(const TokenizerParts& parts) : parts_(parts) {
  const std::lock_guard lock(parts.mutex);
  if (parts.idle.empty()) {
    memory_ = std::make_unique<EncodeMemory>(parts.seeds++);
  } else {
    memory_ = std::move(parts.idle.back());
    parts.idle.pop_back();
  }
}

TokenizerParts::Loan::~Loan() {
  memory_->trim();
  const std::lock_guard lock(parts_.mutex);
  parts_.idle.push_back(std::move(memory_));
}

Encoding TokenizerParts::encode(const EncodeInput& input, const EncodeOptions& options,
                                EncodeMemory& memory, Encoding lists) const {
  std::vector<Draft>& drafts = memory.drafts;
  drafts.clear();
  drafts.push_back(encode_part(input.first, 0, options, memory, std::move(lists)));
  if (input.second) drafts.push_back(encode_part(*input.second, 1, options, memory));
  if (const auto& cut = options.truncation ? options.truncation : truncation) {
    truncate_all(drafts, *cut, options.add_special_tokens);
  }
  if (post_processor) {
    for (size_t i = 0; i < drafts.size(); ++i) drafts[i].set_types(static_cast<int32_t>(i));
    post_processor->process_last(drafts, options.add_special_tokens);
  }
  Draft whole;
  for (Draft& draft : drafts) join(whole, std::move(draft));
  if (!gives_types) {
    whole.set_types(0);
    for (Draft& more : whole.overflowing) more.set_types(0);
  }
  memory.blanks = std::move(whole.blanks);
  return finished(std::move(whole));
}

Draft TokenizerParts::encode_part(const EncodeInput::Part& part, int32_t sequence,
                                  const EncodeOptions& options, EncodeMemory& memory,
                                  Encoding lists) const {
  Draft draft;
  draft.own = std::move(lists);
  draft.own.clear();
  draft.blanks = std::move(memory.blanks);
  draft.blanks.clear();
  draft.tracked = options.offsets != OffsetUnit::kNone;
  draft.has_blanks = draft.tracked && post_processor && post_processor->trims();
  if (part.words) {
    int32_t word = 0;
    for (const std::string& text : *part.words) encode_text(text, word++, options, memory, draft);
  } else {
    encode_text(part.text, -1, options, memory, draft);
  }
  const size_t size = draft.size();
  // The lists have room for special tokens too.
  const size_t room =
      options.add_special_tokens && post_processor ? post_processor->added(true) : 0;
  const auto fill = [&](std::vector<int32_t>& list, int32_t value) {
    list.reserve(std::max(size + room, kLeastRoom));
    list.assign(size, value);
  };
  fill(draft.own.type_ids, sequence);
  fill(draft.own.attention_mask, 1);
  fill(draft.own.special_tokens_mask, 0);
  draft.set_sequences(sequence);
  return draft;
}

void TokenizerParts::encode_text(std::string_view text, int32_t word, const EncodeOptions& options,
                                 EncodeMemory& memory, Draft& draft) const {
  LEVIN_CHECK(text.size() < kLongest, "text.length",
              "got a text of {} bytes, wanted less than 1 GiB; split it", text.size());
  utf8::check(text);
  const bool tracked = options.offsets != OffsetUnit::kNone;
  const size_t first = draft.size();
  if (!tracked) draft.own.ids.reserve(std::max(first + text.size() / 4 + 8, kLeastRoom));
  memory.found.clear();
  const AddedTokens::Sought sought = options.split_added_tokens ? AddedTokens::Sought::kNone
                                     : options.split_special_tokens.value_or(splits_special)
                                         ? AddedTokens::Sought::kPlain
                                         : AddedTokens::Sought::kAll;
  added.find(text, AddedTokens::Of::kText, sought, memory.found);
  uint32_t count = 0;  // number of words
  for (const Piece& piece : memory.found) {
    const std::string_view part = text.substr(piece.begin, piece.end - piece.begin);
    if (piece.token >= 0) {
      put_added(piece.token, part, {piece.begin, piece.end},
                word >= 0 ? word : static_cast<int32_t>(count), draft);
      ++count;
      continue;
    }
    memory.text.reset(part, piece.begin, tracked || needs_origin);
    if (normalizer) normalizer.apply(memory.text);
    memory.pieces.clear();
    added.find(memory.text.text(), AddedTokens::Of::kNormalized, sought, memory.pieces);
    if (pre_tokenizer) {
      if (of_bytes) {
        pre_tokenizer.apply_without_byte_letters(memory.text, memory.pieces);
      } else {
        pre_tokenizer.apply(memory.text, memory.pieces);
      }
    }
    encode_pieces(count, word, tracked, memory, draft);
  }
  if (options.offsets == OffsetUnit::kCodePoints) {
    count_code_points(text, memory.code_points, std::span(draft.own.offsets).subspan(first));
  }
}

void TokenizerParts::encode_pieces(uint32_t& count, int32_t word, bool tracked,
                                   EncodeMemory& memory, Draft& draft) const {
  const WorkingText& text = memory.text;
  std::vector<int32_t>& ids = draft.own.ids;
  for (const Piece& piece : memory.pieces) {
    if (piece.empty()) continue;
    const int32_t number = word >= 0 ? word : static_cast<int32_t>(count);
    ++count;
    if (piece.token >= 0) {
      Bytes origin;
      if (tracked) origin = {text.origin(piece.begin).begin, text.origin(piece.end - 1).end};
      put_added(piece.token, text.text().substr(piece.begin, piece.end - piece.begin), origin,
                number, draft);
      continue;
    }
    memory.tokens.clear();
    model->tokenize(text.text().substr(piece.begin, piece.end - piece.begin), memory.tokens,
                    memory.model);
    if (!tracked) {
      for (const Token& token : memory.tokens) ids.push_back(token.id);
      continue;
    }
    for (const Token& token : memory.tokens) {
      ids.push_back(token.id);
      draft.own.word_ids.push_back(number);
      Offset offset{static_cast<int32_t>(token.begin), static_cast<int32_t>(token.end)};
      if (token.begin == token.end) {
        const auto base = static_cast<int32_t>(text.origin(piece.begin).begin);
        offset = {base + offset.begin, base + offset.end};
      } else if (piece.begin + token.end <= piece.end) {
        offset = {static_cast<int32_t>(text.origin(piece.begin + token.begin).begin),
                  static_cast<int32_t>(text.origin(piece.begin + token.end - 1).end)};
      }
      draft.own.offsets.push_back(offset);
      if (!draft.has_blanks) continue;
      const auto id = static_cast<size_t>(token.id);
      draft.blanks.push_back(id < blanks.size() ? blanks[id]
                                                : blanks_of(*model->vocabulary().token(token.id)));
    }
  }
}

/// The pieces that a model would see, letters for bytes included.
void TokenizerParts::for_each_piece(std::string_view text,
                                    const std::function<void(std::string_view)>& visit) const {
  utf8::check(text);
  std::vector<Piece> found;
  std::vector<Piece> pieces;
  WorkingText working;
  added.find(text, AddedTokens::Of::kText, AddedTokens::Sought::kAll, found);
  for (const Piece& piece : found) {
    const std::string_view part = text.substr(piece.begin, piece.end - piece.begin);
    if (piece.token >= 0) {
      visit(part);
      continue;
    }
    working.reset(part, piece.begin, needs_origin);
    if (normalizer) normalizer.apply(working);
    pieces.clear();
    added.find(working.text(), AddedTokens::Of::kNormalized, AddedTokens::Sought::kAll, pieces);
    if (pre_tokenizer) pre_tokenizer.apply(working, pieces);
    for (const Piece& one : pieces) {
      if (!one.empty()) visit(working.text().substr(one.begin, one.end - one.begin));
    }
  }
}

void TokenizerParts::put_added(int32_t id, std::string_view text, Bytes origin, int32_t word,
                               Draft& draft) const {
  draft.own.ids.push_back(id);
  if (!draft.tracked) return;
  draft.own.word_ids.push_back(word);
  draft.own.offsets.push_back(
      {static_cast<int32_t>(origin.begin), static_cast<int32_t>(origin.end)});
  if (draft.has_blanks) draft.blanks.push_back(blanks_of(text));
}

}  // namespace levin::text
