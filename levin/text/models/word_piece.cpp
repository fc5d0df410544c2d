// WordPiece: takes the longest token at a word's beginning, then the longest continuation, to the
// word's end.
#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/text/models/tree_model.h"

namespace levin::text {
namespace {

class WordPieceModel : public TreeModel {
 public:
  WordPieceModel(const Component& component, const ModelData& data)
      : TreeModel(component, data),
        unknown_(component.text("unk_token", "[UNK]")),
        most_(component.whole("max_input_chars_per_word", 100)) {
    unknown_id_ = vocabulary_.find(unknown_);
    inner_ = tree().walk(PrefixTree::kRoot, component.text("continuing_subword_prefix", "##"));
  }

 private:
  void tokenize_anew(std::string_view piece, std::vector<Token>& tokens,
                     ModelMemory&) const override {
    const size_t first = tokens.size();
    if (find_tokens(piece, tokens)) return;
    tokens.resize(first);
    LEVIN_CHECK(unknown_id_ >= 0, "text.model",
                "'{}' is not in the vocabulary, and neither is the unknown token '{}'",
                printable(piece.substr(0, 100)), printable(unknown_));
    tokens.push_back({unknown_id_, 0, static_cast<uint32_t>(piece.size())});
  }

  /// False where some part of the word is no token, or the word is too long.
  bool find_tokens(std::string_view piece, std::vector<Token>& tokens) const {
    if (static_cast<int64_t>(utf8::count(piece)) > most_) return false;
    for (size_t begin = 0; begin < piece.size();) {
      int32_t node = begin == 0 ? PrefixTree::kRoot : inner_;
      int32_t id = PrefixTree::kNone;
      size_t end = begin;
      for (size_t at = begin; at < piece.size() && node != PrefixTree::kNone; ++at) {
        node = tree().step(node, piece[at]);
        if (node == PrefixTree::kNone) break;
        if (const int32_t here = tree().id(node); here >= 0) {
          id = here;
          end = at + 1;
        }
      }
      if (id < 0) return false;
      tokens.push_back({id, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
      begin = end;
    }
    return true;
  }

  std::string unknown_;
  int32_t unknown_id_;
  int64_t most_;
  int32_t inner_;
};

}  // namespace

ModelPtr read_word_piece(const Component& component, const ModelData& data) {
  return std::make_unique<WordPieceModel>(component, data);
}

}  // namespace levin::text
