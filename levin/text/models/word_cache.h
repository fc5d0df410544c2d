#pragma once
// WordCache: the tokens of pieces that were seen before. Words come again and again, and most of a text is
// found here. Not for users.
//
//   cache.tokenize(piece, tokens, [&] { /* appends the piece's tokens to tokens */ });

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "levin/text/models/hash.h"

namespace levin::text {

/// A token of a piece, and the bytes of the piece that it stands for.
struct Token {
  int32_t id;
  uint32_t begin;
  uint32_t end;
};

class WordCache {
 public:
  static constexpr size_t kLongest = 64;  // bytes of a piece that is kept

  std::optional<std::span<const Token>> find(std::string_view piece, uint64_t hash) const {
    if (slots_.empty()) return std::nullopt;
    for (size_t at = hash & kMask;; at = (at + 1) & kMask) {
      const Slot& slot = slots_[at];
      if (slot.size == 0) return std::nullopt;
      if (slot.hash == static_cast<uint32_t>(hash >> 32) && slot.size == piece.size() &&
          std::memcmp(bytes_.data() + slot.begin, piece.data(), piece.size()) == 0) {
        return std::span(tokens_).subspan(slot.first, slot.count);
      }
    }
  }

  /// Stores a piece that is not empty and not in the cache.
  void put(std::string_view piece, uint64_t hash, std::span<const Token> tokens) {
    // A file may make any number of tokens of a character.
    if (piece.size() > kLongest || tokens.size() > 4 * kLongest) return;
    if (slots_.empty() || number_ * 2 >= kSlots) clear();
    size_t at = hash & kMask;
    while (slots_[at].size != 0) at = (at + 1) & kMask;
    slots_[at] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(bytes_.size()),
                  static_cast<uint32_t>(tokens_.size()), static_cast<uint16_t>(piece.size()),
                  static_cast<uint16_t>(tokens.size())};
    bytes_.insert(bytes_.end(), piece.begin(), piece.end());
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    ++number_;
  }

  /// Appends a piece's tokens: the cached ones, else those that anew() appends.
  template <class Anew>
  void tokenize(std::string_view piece, std::vector<Token>& tokens, const Anew& anew) {
    if (piece.size() > kLongest) return anew();
    const uint64_t hash = hash_of(piece);
    if (const auto known = find(piece, hash)) {
      tokens.insert(tokens.end(), known->begin(), known->end());
      return;
    }
    const size_t first = tokens.size();
    anew();
    put(piece, hash, std::span(tokens).subspan(first));
  }

 private:
  static constexpr size_t kSlots = 1 << 16;
  static constexpr size_t kMask = kSlots - 1;
  struct Slot {
    uint32_t hash;
    uint32_t begin;  // in bytes_
    uint32_t first;  // in tokens_
    uint16_t size;   // 0: free
    uint16_t count;
  };

  void clear() {
    slots_.assign(kSlots, Slot{});
    bytes_.clear();
    tokens_.clear();
    number_ = 0;
  }

  std::vector<Slot> slots_;
  std::vector<char> bytes_;
  std::vector<Token> tokens_;
  size_t number_ = 0;
};

}  // namespace levin::text
