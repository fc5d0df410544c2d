#include "levin/text/models/bpe.h"

#include <algorithm>
#include <bit>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/text/unicode/byte_letters.h"
#include "levin/text/unicode/utf8.h"

namespace levin::text {
namespace {

constexpr size_t kJointBits = 1 << 20;
constexpr size_t kShort = 12;  // bytes up to which a piece is not cut

std::string byte_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

/// The bytes that a token of letters stands for; nothing where one of them stands for none.
std::optional<std::string> bytes_of(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const int byte = letter_byte(utf8::next(token, at));
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

char32_t first_of(std::string_view text) {
  size_t at = 0;
  return utf8::next(text, at);
}
char32_t last_of(std::string_view text) {
  size_t at = utf8::before(text, text.size());
  return utf8::next(text, at);
}

size_t joint_of(char32_t left, char32_t right) {
  return mix(static_cast<uint64_t>(left) << 32 | right, 1) & (kJointBits - 1);
}

}  // namespace

void MergeTable::reserve(size_t merges) {
  merges_.assign(std::bit_ceil(merges * 2 + 2), Merge{});
  mask_ = merges_.size() - 1;
}

void MergeTable::put(int32_t left, int32_t right, uint32_t rank, int32_t id) {
  auto& place = const_cast<Merge&>(find(left, right));
  place = {pair_of(left, right), rank, id};
}

Bpe::Bpe(const Component& component, const ModelData& data)
    : dropout_(component.has("dropout") ? component.at("dropout").number() : 0.0),
      unknown_(component.text("unk_token", "")),
      has_unknown_(component.has("unk_token")),
      prefix_(component.text("continuing_subword_prefix", "")),
      suffix_(component.text("end_of_word_suffix", "")),
      fuses_unknown_(component.flag("fuse_unk", false)),
      falls_back_(component.flag("byte_fallback", false)),
      ignores_merges_(component.flag("ignore_merges", false)) {
  if (!(dropout_ >= 0.0 && dropout_ <= 1.0)) component.at("dropout").fail("is not within 0 and 1");
  if (!data.has_merges) component.fail("has no merges");
  vocabulary_ = read_vocabulary(component, data);
  if (has_unknown_) unknown_id_ = vocabulary_.find(unknown_);
  knows_all_ = falls_back_;
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = vocabulary_.find(byte_token(static_cast<uint8_t>(byte)));
    knows_all_ = knows_all_ && byte_tokens_[byte] >= 0;
  }
  read_merges(component, data);
  find_joints(data);
}

void Bpe::read_merges(const Component& component, const ModelData& data) {
  merges_.reserve(data.merges.size());
  std::string joined;
  uint32_t rank = 0;
  for (const auto& [left, right] : data.merges) {
    const auto id_of = [&](std::string_view token) {
      const int32_t id = vocabulary_.find(token);
      if (id < 0) {
        component.fail(fmt::format("has a merge of '{}' and '{}', and no token '{}'",
                                   printable(left), printable(right), printable(token)));
      }
      return id;
    };
    const int32_t left_id = id_of(left);
    const int32_t right_id = id_of(right);
    if (right.size() < prefix_.size()) component.fail("has a merge shorter than its prefix");
    joined.assign(left);
    joined += right.substr(prefix_.size());
    merges_.put(left_id, right_id, rank++, id_of(joined));
  }
}

void Bpe::find_joints(const ModelData& data) {
  // With a prefix or suffix a character is another token at an end, so that no part is like a whole.
  if (!prefix_.empty() || !suffix_.empty() || dropout_ > 0.0) return;
  joints_.assign(kJointBits / 64, 0);
  for (const auto& [left, right] : data.merges) {
    // What stands for a character that is not known has no first and last one.
    const auto is_substitute = [&](std::string_view token) {
      return (has_unknown_ && token == unknown_) ||
             (falls_back_ && token.size() == 6 && token.starts_with("<0x") && token.ends_with(">"));
    };
    if (left.empty() || right.empty() || is_substitute(left) || is_substitute(right)) return;
    const size_t joint = joint_of(last_of(left), first_of(right));
    joints_[joint / 64] |= uint64_t{1} << joint % 64;
  }
  has_cuts_ = true;
}

bool Bpe::take_bytes() {
  for (size_t place = 0; place < 4; ++place) {
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string token = place & 1 ? prefix_ : "";
      utf8::append(token, byte_letter(static_cast<uint8_t>(byte)));
      if (place & 2) token += suffix_;
      byte_symbols_[place][byte] = vocabulary_.find(token);
      if (byte_symbols_[place][byte] < 0) return false;
    }
  }
  of_bytes_ = true;
  if (has_cuts_) {
    // The same joints, by bytes: 256 times 256 of them.
    std::vector<uint64_t> joints(1024, 0);
    for (size_t left = 0; left < 256; ++left) {
      for (size_t right = 0; right < 256; ++right) {
        const size_t joint = joint_of(byte_letter(static_cast<uint8_t>(left)),
                                      byte_letter(static_cast<uint8_t>(right)));
        const uint64_t bit = joints_[joint / 64] >> joint % 64 & 1;
        joints[(left << 8 | right) / 64] |= bit << right % 64;
      }
    }
    joints_ = std::move(joints);
  }
  if (ignores_merges_) {
    by_bytes_ = std::make_unique<Vocabulary>();
    vocabulary_.for_each([&](std::string_view token, int32_t id) {
      if (const auto bytes = bytes_of(token)) by_bytes_->add(*bytes, id);
    });
  }
  return true;
}

bool Bpe::may_join(char32_t left, char32_t right) const {
  const size_t joint = of_bytes_ ? left << 8 | right : joint_of(left, right);
  return joints_[joint / 64] >> joint % 64 & 1;
}

int32_t Bpe::whole(std::string_view piece) const {
  return by_bytes_ ? by_bytes_->find(piece) : vocabulary_.find(piece);
}

void Bpe::tokenize(std::string_view piece, std::vector<Token>& tokens, ModelMemory& memory) const {
  const bool cached = dropout_ == 0.0 && piece.size() <= WordCache::kLongest;
  const uint64_t hash = cached ? hash_of(piece) : 0;
  if (cached) {
    if (const auto known = memory.cache.find(piece, hash)) {
      tokens.insert(tokens.end(), known->begin(), known->end());
      return;
    }
  }
  const size_t first = tokens.size();
  const int32_t id = ignores_merges_ && dropout_ == 0.0 ? whole(piece) : Vocabulary::kNone;
  if (id >= 0) {
    tokens.push_back({id, 0, static_cast<uint32_t>(piece.size())});
  } else if (has_cuts_ && piece.size() > kShort) {
    tokenize_parts(piece, tokens, memory);
  } else {
    tokenize_anew(piece, tokens, memory);
  }
  if (cached) memory.cache.put(piece, hash, std::span(tokens).subspan(first));
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
                  "'{}' is not known, and the vocabulary has no '{}' to stand for it",
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

ModelPtr read_bpe(const Component& component, const ModelData& data) {
  return std::make_unique<Bpe>(component, data);
}

}  // namespace levin::text
