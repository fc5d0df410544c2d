#include <algorithm>

#include "levin/text/patterns/pattern.h"
#include "levin/text/pre_tokenizers/kinds.h"
#include "levin/text/pre_tokenizers/splits.h"

namespace levin::text {
namespace {

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(const Component& component) {
    for (const Component& item : component.at("pretokenizers").items()) {
      if (PreTokenizerPtr part = read_pre_tokenizer(item)) parts_.push_back(std::move(part));
    }
  }
  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    for (const PreTokenizerPtr& part : parts_) part->apply(text, pieces);
  }
  bool needs_origin() const override {
    return std::ranges::any_of(parts_, [](auto& part) { return part->needs_origin(); });
  }
  bool ends_with_byte_letters() const override {
    return !parts_.empty() && parts_.back()->ends_with_byte_letters();
  }
  void apply_without_byte_letters(WorkingText& text, std::vector<Piece>& pieces) const override {
    for (const PreTokenizerPtr& part : parts_) {
      if (part == parts_.back()) {
        part->apply_without_byte_letters(text, pieces);
      } else {
        part->apply(text, pieces);
      }
    }
  }

 private:
  std::vector<PreTokenizerPtr> parts_;
};

class Split : public PreTokenizer {
 public:
  explicit Split(const Component& component)
      : pattern_(read_pattern(component.at("pattern"))),
        behaviour_(read_behaviour(component.at("behavior"))),
        inverted_(component.flag("invert", false)) {}

  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    split(text, pieces, behaviour_, inverted_,
          [&](std::string_view part, std::vector<Bytes>& found) { pattern_->find(part, found); });
  }

 private:
  PatternPtr pattern_;
  SplitBehaviour behaviour_;
  bool inverted_;
};

}  // namespace

PreTokenizerPtr read_pre_tokenizers(const Component& component) {
  return std::make_unique<PreTokenizerSequence>(component);
}

PreTokenizerPtr read_split(const Component& component) {
  return std::make_unique<Split>(component);
}

PreTokenizerPtr read_pre_tokenizer(const Component& component) {
  if (component.is_null()) return nullptr;
  const std::string kind = component.kind();
  if (kind == "Sequence") return read_pre_tokenizers(component);
  if (kind == "ByteLevel") return read_byte_level(component);
  if (kind == "Metaspace") return read_metaspace(component);
  if (kind == "Split") return read_split(component);
  if (PreTokenizerPtr simple = read_simple_pre_tokenizer(kind, component)) return simple;
  component.refuse_kind("pre-tokenizer",
                        {"Sequence", "BertPreTokenizer", "ByteLevel", "Whitespace",
                         "WhitespaceSplit", "Split", "Punctuation", "Metaspace", "Digits",
                         "UnicodeScripts", "CharDelimiterSplit", "FixedLength"});
}

}  // namespace levin::text
