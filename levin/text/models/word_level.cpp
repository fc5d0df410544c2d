// WordLevel: a piece is a token, or is not known.
#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/text/models/model.h"

namespace levin::text {
namespace {

class WordLevel : public Model {
 public:
  WordLevel(const Component& component, const ModelData& data)
      : unknown_(component.text("unk_token", "<unk>")) {
    vocabulary_ = read_vocabulary(component, data);
    unknown_id_ = vocabulary_.find(unknown_);
  }

  void tokenize(std::string_view piece, std::vector<Token>& tokens, ModelMemory&) const override {
    int32_t id = vocabulary_.find(piece);
    if (id < 0) id = unknown_id_;
    LEVIN_CHECK(id >= 0, "text.model",
                "'{}' is not in the vocabulary, and neither is the unknown token '{}'",
                printable(piece.substr(0, 100)), printable(unknown_));
    tokens.push_back({id, 0, static_cast<uint32_t>(piece.size())});
  }

 private:
  std::string unknown_;
  int32_t unknown_id_;
};

}  // namespace

ModelPtr read_word_level(const Component& component, const ModelData& data) {
  return std::make_unique<WordLevel>(component, data);
}

}  // namespace levin::text
