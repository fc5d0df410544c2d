#include "levin/text/models/prefix_tree.h"

#include <algorithm>

namespace levin::text {

PrefixTree::PrefixTree(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  tokens.reserve(vocabulary.size());
  size_t bytes = 0;
  vocabulary.for_each([&](std::string_view token, int32_t id) {
    if (!token.empty()) tokens.emplace_back(token, id);
    bytes += token.size();
  });
  std::ranges::sort(tokens);
  nodes_.reserve(bytes / 2 + 512);
  nodes_.resize(512);
  nodes_[kRoot].parent = kRoot;
  std::vector<Part> parts = {{kRoot, 0, static_cast<uint32_t>(tokens.size()), 0}};
  while (!parts.empty()) {
    const Part part = parts.back();
    parts.pop_back();
    place_children(part, tokens, parts);
  }
}

void PrefixTree::place_children(const Part& part,
                                const std::vector<std::pair<std::string_view, int32_t>>& tokens,
                                std::vector<Part>& parts) {
  uint32_t at = part.begin;
  // In order, the token that ends here stands first.
  if (at < part.end && tokens[at].first.size() == part.depth) {
    nodes_[static_cast<size_t>(part.node)].id = tokens[at++].second;
  }
  if (at == part.end) {
    nodes_[static_cast<size_t>(part.node)].base = -256;  // out of the array, whatever comes
    return;
  }
  std::vector<uint8_t> bytes;
  const size_t first_part = parts.size();
  while (at < part.end) {
    const char byte = tokens[at].first[part.depth];
    uint32_t end = at + 1;
    while (end < part.end && tokens[end].first[part.depth] == byte) ++end;
    bytes.push_back(static_cast<uint8_t>(byte));
    parts.push_back({kNone, at, end, part.depth + 1});
    at = end;
  }
  const int32_t base = free_base(bytes);
  nodes_[static_cast<size_t>(part.node)].base = base;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int32_t child = base + bytes[i];
    nodes_[static_cast<size_t>(child)].parent = part.node;
    parts[first_part + i].node = child;
  }
}

int32_t PrefixTree::free_base(const std::vector<uint8_t>& bytes) {
  size_t taken = 0;
  size_t tried = 0;
  for (size_t at = std::max<size_t>(first_free_, bytes.front() + size_t{1});; ++at, ++tried) {
    if (at + 256 >= nodes_.size()) nodes_.resize(nodes_.size() * 2);
    if (nodes_[at].parent != kNone) {
      ++taken;
      continue;
    }
    const size_t base = at - bytes.front();
    const bool fits = std::ranges::all_of(
        bytes, [&](uint8_t byte) { return nodes_[base + byte].parent == kNone; });
    if (!fits) continue;
    // Where nearly all is taken it is not searched again.
    if (tried > 64 && taken * 20 >= tried * 19) first_free_ = at;
    return static_cast<int32_t>(base);
  }
}

}  // namespace levin::text
