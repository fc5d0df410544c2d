#pragma once
// TreeModel: a model that looks for its tokens in a tree of the vocabulary, and keeps the tokens of pieces that it has
// seen: Unigram and WordPiece. Not for users.

#include <memory>
#include <string_view>
#include <vector>

#include "levin/text/models/model.h"
#include "levin/text/models/prefix_tree.h"

namespace levin::text {

class TreeModel : public Model {
 public:
  void tokenize(std::string_view piece, std::vector<Token>& tokens,
                ModelMemory& memory) const final {
    memory.cache.tokenize(piece, tokens, [&] { tokenize_anew(piece, tokens, memory); });
  }

 protected:
  TreeModel(const Component& component, const ModelData& data) {
    vocabulary_ = read_vocabulary(component, data);
    tree_ = std::make_unique<PrefixTree>(vocabulary_);
  }

  const PrefixTree& tree() const { return *tree_; }

 private:
  virtual void tokenize_anew(std::string_view piece, std::vector<Token>& tokens,
                             ModelMemory& memory) const = 0;

  std::unique_ptr<PrefixTree> tree_;
};

}  // namespace levin::text
