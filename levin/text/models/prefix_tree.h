#pragma once
// PrefixTree: all tokens that a text begins with, found in one walk over its bytes (a double array).
// Not for users.
//
//   PrefixTree tree(vocabulary);
//   auto node = tree.step(PrefixTree::kRoot, 'a');   // kNone where no token begins with it
//   tree.id(node);                                   // kNone where no token ends here

#include <cstdint>
#include <string_view>
#include <vector>

#include "levin/text/models/vocabulary.h"

namespace levin::text {

class PrefixTree {
 public:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kRoot = 0;

  explicit PrefixTree(const Vocabulary& vocabulary);

  int32_t step(int32_t node, char byte) const {
    const int32_t place = nodes_[static_cast<size_t>(node)].base + static_cast<uint8_t>(byte);
    const auto next = static_cast<uint32_t>(place);  // a place below 0 wraps to one beyond the end
    return next < nodes_.size() && nodes_[next].parent == node ? static_cast<int32_t>(next) : kNone;
  }
  /// Follows a text from a node on; returns kNone if the path ends.
  int32_t walk(int32_t node, std::string_view text) const {
    for (size_t i = 0; i < text.size() && node != kNone; ++i) node = step(node, text[i]);
    return node;
  }
  int32_t id(int32_t node) const { return nodes_[static_cast<size_t>(node)].id; }

 private:
  class Builder;
  struct Node {
    int32_t base = 0;
    int32_t parent = kNone;
    int32_t id = kNone;
  };

  std::vector<Node> nodes_;
};

}  // namespace levin::text
