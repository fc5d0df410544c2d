#include <limits>

#include "levin/base/check.h"
#include "levin/text/models/model.h"

namespace levin::text {

std::string model_kind(const Component& component, const ModelData& data) {
  if (component.has("type")) return component.kind();
  if (data.has_merges) return "BPE";
  if (data.is_list) return "Unigram";
  if (component.has("max_input_chars_per_word") || component.has("continuing_subword_prefix")) {
    return "WordPiece";
  }
  return "WordLevel";
}

Vocabulary read_vocabulary(const Component& component, const ModelData& data) {
  if (!data.has_vocabulary) component.fail("has no vocab");
  Vocabulary vocabulary;
  size_t bytes = 0;
  for (const auto& entry : data.vocabulary) bytes += entry.token.size();
  vocabulary.reserve(data.vocabulary.size(), bytes);
  for (const auto& entry : data.vocabulary) {
    if (entry.id > std::numeric_limits<int32_t>::max()) {
      component.fail(fmt::format("has the id {}, wanted one below 2^31", entry.id));
    }
    vocabulary.add(entry.token, static_cast<int32_t>(entry.id));
  }
  return vocabulary;
}

ModelPtr read_model(const Component& component, const ModelData& data) {
  const std::string kind = model_kind(component, data);
  const bool wants_list = kind == "Unigram";
  const bool known = wants_list || kind == "BPE" || kind == "WordPiece" || kind == "WordLevel";
  if (!known) component.refuse_kind("model", {"BPE", "WordPiece", "WordLevel", "Unigram"});
  if (data.has_vocabulary && data.is_list != wants_list) {
    component.fail(wants_list ? "has a vocab that is not a list"
                              : "has a vocab that is not an object");
  }
  if (wants_list) return read_unigram(component, data);
  if (kind == "BPE") return read_bpe(component, data);
  if (kind == "WordPiece") return read_word_piece(component, data);
  return read_word_level(component, data);
}

}  // namespace levin::text
