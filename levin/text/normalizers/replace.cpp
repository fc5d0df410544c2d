// Replace: another text for each match of a pattern.
#include "levin/text/normalizers/kinds.h"
#include "levin/text/patterns/pattern.h"

namespace levin::text {
namespace {

class ReplaceNormalizer : public Normalizer {
 public:
  explicit ReplaceNormalizer(const Component& component)
      : pattern_(read_pattern(component.at("pattern"))), content_(component.at("content").text()) {}

  void apply(WorkingText& text) const override {
    std::vector<Bytes>& matches = text.scratch().matches;
    matches.clear();
    pattern_->find(text.text(), matches);
    if (matches.empty()) return;
    text.begin();
    size_t at = 0;
    for (const Bytes match : matches) {
      text.copy(at, match.begin);
      // It comes from the last byte that it replaces, or from nowhere.
      Bytes origin = text.front();
      if (text.tracked() && match.end > 0) origin = text.origin(match.end - 1);
      text.put(content_, origin);
      at = match.end;
    }
    text.copy(at, text.text().size());
    text.finish();
  }

  bool needs_origin() const override { return pattern_->may_be_empty(); }

 private:
  PatternPtr pattern_;
  std::string content_;
};

}  // namespace

NormalizerPtr read_replace(const Component& component) {
  return std::make_unique<ReplaceNormalizer>(component);
}

}  // namespace levin::text
