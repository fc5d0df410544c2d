#include "levin/text/models/bpe.h"

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/text/unicode/byte_letters.h"

namespace levin::text {
namespace {

constexpr size_t kShort = 12;  // bytes up to which a piece is not cut

}  // namespace

bool Bpe::may_join(char32_t left, char32_t right) const {
  const size_t joint = of_bytes_ ? left << 8 | right : joint_of(left, right);
  return joints_[joint / 64] >> joint % 64 & 1;
}

/// The token that a piece is, or none.
int32_t Bpe::whole(std::string_view piece, ModelMemory& memory) const {
  if (!of_bytes_) return vocabulary_.find(piece);
  memory.letters.clear();
  for (const char byte : piece) {
    utf8::append(memory.letters, byte_letter(static_cast<uint8_t>(byte)));
  }
  return vocabulary_.find(memory.letters);
}

void Bpe::tokenize(std::string_view piece, std::vector<Token>& tokens, ModelMemory& memory) const {
  const bool is_random = dropout_ != 0.0;
  const auto tokenize_unseen = [&] {
    const int32_t id = ignores_merges_ && !is_random ? whole(piece, memory) : Vocabulary::kNone;
    if (id >= 0) {
      tokens.push_back({id, 0, static_cast<uint32_t>(piece.size())});
    } else if (has_cuts_ && piece.size() > kShort) {
      tokenize_parts(piece, tokens, memory);
    } else {
      tokenize_anew(piece, tokens, memory);
    }
  };
  if (is_random) return tokenize_unseen();
  memory.cache.tokenize(piece, tokens, tokenize_unseen);
}

/// Cuts where nothing can join, so that of long pieces too most parts are known.
void Bpe::tokenize_parts(std::string_view piece, std::vector<Token>& tokens,
                         ModelMemory& memory) const {
  WordCache& cache = ignores_merges_ ? memory.inner : memory.cache;
  // Characters that nothing stands for are left out, and places do not count them, as in Python's library.
  uint32_t base = 0;
  const auto tokenize_part = [&](size_t begin, size_t end) {
    const std::string_view part = piece.substr(begin, end - begin);
    const size_t first = tokens.size();
    const bool cached = part.size() <= WordCache::kLongest;
    const uint64_t hash = cached ? hash_of(part) : 0;
    const auto known = cached ? cache.find(part, hash) : std::nullopt;
    if (known) {
      tokens.insert(tokens.end(), known->begin(), known->end());
    } else {
      tokenize_anew(part, tokens, memory);
      if (cached && part.size() < piece.size()) {
        cache.put(part, hash, std::span(tokens).subspan(first));
      }
    }
    for (size_t i = first; i < tokens.size(); ++i) {
      tokens[i].begin += base;
      tokens[i].end += base;
    }
    if (tokens.size() > first) base = tokens.back().end;
  };
  size_t begin = 0;
  if (of_bytes_) {
    for (size_t at = 1; at < piece.size(); ++at) {
      if (may_join(static_cast<uint8_t>(piece[at - 1]), static_cast<uint8_t>(piece[at]))) continue;
      tokenize_part(begin, at);
      begin = at;
    }
  } else {
    const auto is_known = [&](size_t from, size_t to) {
      return knows_all_ || vocabulary_.find(piece.substr(from, to - from)) >= 0;
    };
    size_t at = 0;
    char32_t last = utf8::next(piece, at);
    bool last_is_known = is_known(0, at);
    while (at < piece.size()) {
      const size_t place = at;
      const char32_t c = utf8::next(piece, at);
      const bool known = is_known(place, at);
      if (known && last_is_known && !may_join(last, c)) {
        tokenize_part(begin, place);
        begin = place;
      }
      last = c;
      last_is_known = known;
    }
  }
  tokenize_part(begin, piece.size());
}

void Bpe::tokenize_anew(std::string_view piece, std::vector<Token>& tokens,
                        ModelMemory& memory) const {
  memory.symbols.clear();
  begin(piece, memory.symbols);
  merge(memory);
  uint32_t at = 0;
  for (const Symbol& symbol : memory.symbols) {
    tokens.push_back({symbol.id, at, at + symbol.size});
    at += symbol.size;
  }
}

void Bpe::begin(std::string_view piece, std::vector<Symbol>& symbols) const {
  if (!of_bytes_) {
    begin_with_code_points(piece, symbols);
    return;
  }
  for (size_t at = 0; at < piece.size(); ++at) {
    const size_t place = (at > 0 ? 1 : 0) + (at + 1 == piece.size() ? 2 : 0);
    symbols.push_back({byte_symbols_[place][static_cast<uint8_t>(piece[at])], 1, 0, 0, 0, 0});
  }
}

void Bpe::begin_with_code_points(std::string_view piece, std::vector<Symbol>& symbols) const {
  uint32_t unknown = 0;  // bytes that wait to be put as one unknown token
  const auto put_unknown = [&] {
    if (unknown > 0) symbols.push_back({unknown_id_, unknown, 0, 0, 0, 0});
    unknown = 0;
  };
  std::string decorated;
  for (size_t at = 0; at < piece.size();) {
    const size_t begin = at;
    at += utf8::length(piece[at]);
    std::string_view text = piece.substr(begin, at - begin);
    const auto size = static_cast<uint32_t>(text.size());
    if ((begin > 0 && !prefix_.empty()) || (at == piece.size() && !suffix_.empty())) {
      decorated.assign(begin > 0 ? prefix_ : "");
      decorated += text;
      if (at == piece.size()) decorated += suffix_;
      text = decorated;
    }
    if (const int32_t id = vocabulary_.find(text); id >= 0) {
      put_unknown();
      symbols.push_back({id, size, 0, 0, 0, 0});
    } else if (!(falls_back_ && begin_with_byte_tokens(text, symbols)) && has_unknown_) {
      LEVIN_CHECK(unknown_id_ >= 0, "text.model",
                  "'{}' is not in the vocabulary, and neither is the unknown token '{}'",
                  printable(text), printable(unknown_));
      if (!fuses_unknown_) put_unknown();
      unknown += size;
    }
  }
  put_unknown();
}

bool Bpe::begin_with_byte_tokens(std::string_view text, std::vector<Symbol>& symbols) const {
  const auto token_of = [&](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
  if (!std::ranges::all_of(text, [&](char byte) { return token_of(byte) >= 0; })) return false;
  for (const char byte : text) symbols.push_back({token_of(byte), 1, 0, 0, 0, 0});
  return true;
}

}  // namespace levin::text
