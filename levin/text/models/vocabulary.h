#pragma once
// Vocabulary: tokens by id and ids by token, in flat arrays. Not for users.
//
//   Vocabulary vocabulary;
//   vocabulary.add("hello", 7);
//   vocabulary.find("hello");   // 7

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace levin::text {

class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  void reserve(size_t tokens, size_t bytes);
  /// A token that is there already gets the new id.
  void add(std::string_view token, int32_t id);

  /// kNone where there is no such token.
  int32_t find(std::string_view token) const;
  std::optional<std::string_view> token(int32_t id) const;
  /// Returns whether the id is the token that joins both texts, without a search.
  bool is_joined(int32_t id, std::string_view first, std::string_view second) const;
  size_t size() const { return entries_.size(); }

  /// Each token with its id, in the order in which they were added.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Entry& entry : entries_) visit(text_of(entry), entry.id);
  }

 private:
  struct Entry {
    uint32_t begin;
    uint32_t size;
    int32_t id;
  };
  struct Slot {
    uint32_t hash = 0;
    uint32_t entry = 0;  // from 1 on; 0: free
  };

  std::string_view text_of(const Entry& entry) const {
    return {arena_.data() + entry.begin, entry.size};
  }
  const Entry* entry_of(int32_t id) const;
  void grow(size_t tokens);
  const Slot& slot_of(std::string_view token, uint32_t hash) const;

  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> by_id_;                   // entry from 1 on, of small ids
  std::unordered_map<int32_t, uint32_t> beyond_;  // ids far above the number of tokens
};

}  // namespace levin::text
