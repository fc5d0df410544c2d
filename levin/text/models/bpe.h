#pragma once
// BPE: byte pair encoding. A piece begins as its characters (or bytes), and the merge that was learnt first
// is done first, until none is left. Not for users.

#include <array>
#include <bitset>
#include <memory>
#include <string>
#include <vector>

#include "levin/text/models/model.h"

namespace levin::text {

/// The merges by the pair of ids that they join.
class MergeTable {
 public:
  struct Merge {
    uint64_t pair = kFree;
    uint32_t rank = kNever;
    int32_t id = 0;
  };
  static constexpr uint32_t kNever = ~uint32_t{0};

  void reserve(size_t merges);
  /// A pair that is there already gets the new rank.
  void put(int32_t left, int32_t right, uint32_t rank, int32_t id);

  /// The place of the pair, or a free one, whose rank is kNever.
  const Merge& find(int32_t left, int32_t right) const {
    const uint64_t pair = pair_of(left, right);
    size_t at = place_of(pair);
    while (merges_[at].pair != pair && merges_[at].pair != kFree) at = (at + 1) & mask_;
    return merges_[at];
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t place_of(uint64_t pair) const { return mix(pair, 0) & mask_; }

  std::vector<Merge> merges_ = std::vector<Merge>(2);
  size_t mask_ = 1;
};

class Bpe : public Model {
 public:
  Bpe(const Component& component, const ModelData& data);

  void tokenize(std::string_view piece, std::vector<Token>& tokens,
                ModelMemory& memory) const override;
  bool take_bytes() override;
  bool is_bpe() const override { return true; }

 private:
  using Symbol = ModelMemory::Symbol;

  static constexpr size_t kJointBits = 1 << 20;
  static size_t joint_of(char32_t left, char32_t right) {
    return mix(static_cast<uint64_t>(left) << 32 | right, 1) & (kJointBits - 1);
  }

  void read_merges(const Component& component, const ModelData& data);
  void find_joints(const ModelData& data);
  int32_t whole(std::string_view piece, ModelMemory& memory) const;
  bool may_join(char32_t left, char32_t right) const;
  void tokenize_parts(std::string_view piece, std::vector<Token>& tokens,
                      ModelMemory& memory) const;
  void tokenize_anew(std::string_view piece, std::vector<Token>& tokens, ModelMemory& memory) const;
  void begin(std::string_view piece, std::vector<Symbol>& symbols) const;
  void begin_with_code_points(std::string_view piece, std::vector<Symbol>& symbols) const;
  bool begin_with_byte_tokens(std::string_view text, std::vector<Symbol>& symbols) const;
  void merge(ModelMemory& memory) const;
  void merge_few(std::vector<Symbol>& symbols) const;
  void merge_many(ModelMemory& memory) const;
  void look_up(Symbol& left, const Symbol& right) const;

  MergeTable merges_;
  double dropout_;
  std::string unknown_;
  int32_t unknown_id_ = Vocabulary::kNone;
  bool has_unknown_;
  std::string prefix_;
  std::string suffix_;
  bool fuses_unknown_;
  bool falls_back_;
  bool ignores_merges_;
  std::array<int32_t, 256> byte_tokens_{};  // ids of the byte fallback

  // A piece can be cut where no merge joins a token that ends with one character and a token that
  // begins with the next.
  bool has_cuts_ = false;
  bool knows_all_ = false;        // no character is unknown: the fallback has all bytes
  std::vector<uint64_t> joints_;  // hashed pairs of code points, or pairs of bytes
  bool of_bytes_ = false;         // pieces are bytes
  std::array<std::array<int32_t, 256>, 4> byte_symbols_{};  // plain, inner, last, inner and last
};

}  // namespace levin::text
