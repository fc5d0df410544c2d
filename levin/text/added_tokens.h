#pragma once
// AddedTokens: tokens that are found in the text before anything else is done with it. Not for users.
//
//   added.put({.content = "<s>", .special = true}, model);
//   added.find(text, AddedTokens::Of::kText, AddedTokens::Sought::kAll, found);

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "levin/text/models/prefix_tree.h"
#include "levin/text/normalizers/normalizer.h"
#include "levin/text/tokenizer.h"
#include "levin/text/working/working_text.h"

namespace levin::text {

class AddedTokens {
 public:
  /// The text to search: the original, or the normalizer's output.
  enum class Of { kText, kNormalized };
  /// The tokens to search for: kPlain is all but special tokens.
  enum class Sought { kAll, kPlain, kNone };

  /// Adds a token as Python's add_tokens does: it takes the vocabulary's id if the vocabulary has
  /// the token, else the next one.
  void put(AddedToken token, const Vocabulary& vocabulary, const Normalizer& normalizer);
  /// Has to be called after the last put.
  void finish();

  bool empty(Of of) const { return !finders_[static_cast<size_t>(of)]; }
  /// Appends pieces that cover the whole text, those of tokens with their id.
  void find(std::string_view text, Of of, Sought sought, std::vector<Piece>& pieces) const;

  int32_t find(std::string_view content) const;
  const AddedToken* token(int32_t id) const;
  /// Returns the text that the decoder gets for the token.
  std::string_view decoded(int32_t id) const;
  bool is_special(std::string_view content) const;
  size_t size() const { return by_content_.size(); }
  /// By id.
  std::vector<std::pair<int32_t, AddedToken>> all() const;

 private:
  struct Entry {
    AddedToken token;
    std::string pattern;  // the content, normalized if the token asks for it
  };
  struct Finder {
    explicit Finder(const Vocabulary& patterns);
    PrefixTree tree;
    std::array<bool, 256> may_begin{};
  };
  struct Match {
    int32_t id;
    size_t begin;
    size_t end;
  };

  static std::optional<Match> next(const Finder& finder, std::string_view text, size_t from);

  int32_t greatest_ = -1;  // id
  std::unordered_map<std::string, int32_t> by_content_;
  std::unordered_map<int32_t, Entry> by_id_;
  std::unordered_map<std::string, bool> special_;
  std::array<std::unique_ptr<Finder>, 2> finders_;
};

}  // namespace levin::text
