#include "levin/text/models/prefix_tree.h"

#include <algorithm>
#include <array>
#include <bit>

namespace levin::text {

/// Divides the tokens by their bytes from the root on, and finds a place for each node's children.
class PrefixTree::Builder {
 public:
  Builder(const Vocabulary& vocabulary, std::vector<Node>& nodes) : nodes_(nodes) {
    tokens_.reserve(vocabulary.size());
    size_t bytes = 0;
    vocabulary.for_each([&](std::string_view token, int32_t id) {
      if (!token.empty())
        tokens_.push_back({token.data(), static_cast<uint32_t>(token.size()), id});
      bytes += token.size();
    });
    sorted_.resize(tokens_.size());
    nodes_.reserve(bytes + 512);
    nodes_.resize(512);
    nodes_[kRoot].parent = kRoot;
    free_.take(kRoot);
  }

  void build() {
    parts_.push_back({kRoot, 0, static_cast<uint32_t>(tokens_.size()), 0});
    while (!parts_.empty()) {
      const Part part = parts_.back();
      parts_.pop_back();
      place_children(part);
    }
  }

 private:
  /// The free places of the array, one bit each; it grows as needed.
  class FreePlaces {
   public:
    void take(size_t place) {
      reach(place);
      words_[place / 64] &= ~(uint64_t{1} << place % 64);
    }
    /// Returns the 64 bits from a place on.
    uint64_t from(size_t place) {
      reach(place + 64);
      const uint64_t first = words_[place / 64] >> place % 64;
      return place % 64 == 0 ? first : first | words_[place / 64 + 1] << (64 - place % 64);
    }
    /// The first from a place on.
    size_t next(size_t place) {
      uint64_t bits = 0;
      for (; (bits = from(place)) == 0; place += 64) {
      }
      return place + static_cast<size_t>(std::countr_zero(bits));
    }

   private:
    void reach(size_t place) {
      if (place / 64 >= words_.size()) words_.resize(place / 32 + 16, ~uint64_t{0});
    }

    std::vector<uint64_t> words_;
  };

  struct Token {
    const char* bytes;
    uint32_t size;
    int32_t id;
  };
  struct Part {  // tokens that begin with the bytes that lead to a node
    int32_t node;
    uint32_t begin, end, depth;
  };

  void place_children(Part part) {
    take_id(part);
    Node& node = nodes_[static_cast<size_t>(part.node)];
    if (part.begin == part.end) {
      node.base = -256;  // out of the array, whatever comes
      return;
    }
    divide(part);
    const size_t base = free_base();
    if (base + 256 > nodes_.size()) nodes_.resize(base + base / 2 + 512);
    nodes_[static_cast<size_t>(part.node)].base = static_cast<int32_t>(base);
    uint32_t begin = part.begin;
    for (const uint8_t byte : bytes_) {
      const size_t child = base + byte;
      free_.take(child);
      nodes_[child].parent = part.node;
      parts_.push_back({static_cast<int32_t>(child), begin, ends_[byte], part.depth + 1});
      begin = ends_[byte];
    }
  }

  /// The token that ends at a node gives it its id, and is done with.
  void take_id(Part& part) {
    for (uint32_t i = part.begin; i < part.end; ++i) {
      if (tokens_[i].size != part.depth) continue;
      nodes_[static_cast<size_t>(part.node)].id = tokens_[i].id;
      std::swap(tokens_[i], tokens_[part.begin++]);
      return;
    }
  }

  /// Orders the tokens of a part by their next bytes: the part of each of `bytes_` ends at its
  /// place in `ends_`.
  void divide(const Part& part) {
    bytes_.clear();
    const auto byte_of = [&](const Token& token) {
      return static_cast<uint8_t>(token.bytes[part.depth]);
    };
    if (part.end - part.begin == 1) {
      bytes_.push_back(byte_of(tokens_[part.begin]));
      ends_[bytes_.front()] = part.end;
      return;
    }
    for (uint32_t i = part.begin; i < part.end; ++i) {
      const uint8_t byte = byte_of(tokens_[i]);
      if (counts_[byte]++ == 0) bytes_.push_back(byte);
    }
    std::ranges::sort(bytes_);  // few, as a rule
    uint32_t at = part.begin;
    for (const uint8_t byte : bytes_) {
      ends_[byte] = at;
      at += counts_[byte];
      counts_[byte] = 0;
    }
    if (bytes_.size() > 1) {
      for (uint32_t i = part.begin; i < part.end; ++i)
        sorted_[ends_[byte_of(tokens_[i])]++] = tokens_[i];
      std::copy(sorted_.begin() + part.begin, sorted_.begin() + part.end,
                tokens_.begin() + part.begin);
    } else {
      ends_[bytes_.front()] = part.end;
    }
  }

  /// A place behind which each of `bytes_` is free.
  size_t free_base() {
    if (bytes_.size() == 1) {
      first_free_ = free_.next(first_free_);
      return first_free_ - bytes_.front();
    }
    // 64 places at a time.
    for (size_t at = first_roomy_, tried = 0;; at += 64, ++tried) {
      uint64_t fits = ~uint64_t{0};
      for (size_t i = 0; i < bytes_.size() && fits != 0; ++i) fits &= free_.from(at + bytes_[i]);
      if (fits == 0) continue;
      if (tried > kPatience) first_roomy_ = at;  // earlier blocks failed too often
      return at + static_cast<size_t>(std::countr_zero(fits));
    }
  }

  static constexpr size_t kPatience = 16;

  std::vector<Node>& nodes_;
  std::vector<Token> tokens_;
  std::vector<Token> sorted_;
  std::vector<Part> parts_;
  std::vector<uint8_t> bytes_;  // first bytes of the children that are placed
  std::array<uint32_t, 256> counts_{};
  std::array<uint32_t, 256> ends_{};
  FreePlaces free_;
  size_t first_free_ = 256;  // any byte may lead there
  size_t first_roomy_ = 1;   // for several children nothing before it is worth a look
};

PrefixTree::PrefixTree(const Vocabulary& vocabulary) { Builder(vocabulary, nodes_).build(); }

}  // namespace levin::text
