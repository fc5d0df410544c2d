// Unigram: of all ways to cut a piece into tokens the one with the best sum of scores (Viterbi).
#include <limits>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/text/models/tree_model.h"

namespace levin::text {
namespace {

constexpr double kUnknownPenalty = 10.0;

class Unigram : public TreeModel {
 public:
  Unigram(const Component& component, const ModelData& data)
      : TreeModel(component, data),
        unknown_id_(static_cast<int32_t>(component.whole("unk_id", Vocabulary::kNone))),
        falls_back_(component.flag("byte_fallback", false)),
        scores_(data.scores) {
    if (component.has("unk_id") &&
        (component.whole("unk_id", 0) < 0 ||
         component.whole("unk_id", 0) >= static_cast<int64_t>(data.vocabulary.size()))) {
      component.at("unk_id").fail("is not an index of the vocabulary");
    }
    double least = std::numeric_limits<double>::infinity();
    for (const double score : scores_) least = std::min(least, score);
    unknown_score_ = least - kUnknownPenalty;
    for (size_t byte = 0; byte < 256; ++byte) {
      byte_tokens_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
    }
  }

 private:
  using Path = ModelMemory::Path;
  static constexpr uint32_t kNoPath = ~uint32_t{0};

  void tokenize_anew(std::string_view piece, std::vector<Token>& tokens,
                     ModelMemory& memory) const override {
    find_paths(piece, memory.paths);
    put_path(piece, tokens, memory.paths);
  }

  void find_paths(std::string_view piece, std::vector<Path>& paths) const {
    paths.assign(piece.size() + 1, {0.0, 0, kNoPath});
    for (size_t begin = 0; begin < piece.size();) {
      const double before = paths[begin].score;
      const size_t length = utf8::length(piece[begin]);
      const auto offer = [&](size_t end, double score, int32_t id) {
        Path& path = paths[end];
        if (path.begin != kNoPath && !(score > path.score)) return false;
        path = {score, id, static_cast<uint32_t>(begin)};
        return true;
      };
      bool has_single = false;
      int32_t node = PrefixTree::kRoot;
      for (size_t at = begin; at < piece.size(); ++at) {
        node = tree().step(node, piece[at]);
        if (node == PrefixTree::kNone) break;
        const int32_t id = tree().id(node);
        if (id < 0) continue;
        offer(at + 1, scores_[static_cast<size_t>(id)] + before, id);
        has_single = has_single || at + 1 == begin + length;
      }
      if (!has_single && offer(begin + length, unknown_score_ + before, unknown_id_))
        check_unknown(piece);
      begin += length;
    }
  }

  void check_unknown(std::string_view piece) const {
    LEVIN_CHECK(unknown_id_ >= 0, "text.model",
                "'{}' is not in the vocabulary, and the model has no unk_id",
                printable(piece.substr(0, 100)));
  }

  /// Goes from the end to the beginning; unknown tokens beside each other become one.
  void put_path(std::string_view piece, std::vector<Token>& tokens,
                const std::vector<Path>& paths) const {
    const size_t first = tokens.size();
    auto end = static_cast<uint32_t>(piece.size());
    while (end > 0) {
      const bool unknown = paths[end].id == unknown_id_;
      uint32_t begin = paths[end].begin;
      while (unknown && begin > 0 && paths[begin].id == unknown_id_) begin = paths[begin].begin;
      if (unknown) {
        put_unknown(piece, begin, end, tokens);
      } else {
        tokens.push_back({paths[end].id, begin, end});
      }
      end = begin;
    }
    std::reverse(tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end());
  }

  void put_unknown(std::string_view piece, uint32_t begin, uint32_t end,
                   std::vector<Token>& tokens) const {
    const std::string_view text = piece.substr(begin, end - begin);
    if (const int32_t id = vocabulary_.find(text); id >= 0) {
      tokens.push_back({id, begin, end});
      return;
    }
    const auto token_of = [&](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
    const bool has_bytes =
        std::all_of(text.begin(), text.end(), [&](char byte) { return token_of(byte) >= 0; });
    if (!falls_back_ || !has_bytes) {
      check_unknown(piece);
      tokens.push_back({unknown_id_, begin, end});
      return;
    }
    // Backwards, as the rest is; each stands for the whole text.
    for (size_t i = text.size(); i > 0; --i) tokens.push_back({token_of(text[i - 1]), begin, end});
  }

  int32_t unknown_id_;
  bool falls_back_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0.0;
  std::array<int32_t, 256> byte_tokens_{};
};

}  // namespace

ModelPtr read_unigram(const Component& component, const ModelData& data) {
  return std::make_unique<Unigram>(component, data);
}

}  // namespace levin::text
