// The normalizers of a few lines: Lowercase, Strip, StripAccents, Prepend, Nmt, ByteLevel, and Sequence.
#include <algorithm>

#include "levin/text/normalizers/code_points.h"
#include "levin/text/normalizers/kinds.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text {
namespace {

using unicode::Unicode;

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(const Component& component) {
    for (const Component& item : component.at("normalizers").items()) {
      if (NormalizerPtr part = read_normalizer(item)) parts_.push_back(std::move(part));
    }
  }
  void apply(WorkingText& text) const override {
    for (const NormalizerPtr& part : parts_) part->apply(text);
  }
  bool needs_origin() const override {
    return std::ranges::any_of(parts_, [](auto& part) { return part->needs_origin(); });
  }

 private:
  std::vector<NormalizerPtr> parts_;
};

class Lowercase : public Normalizer {
  void apply(WorkingText& text) const override { lowercase(text); }
};

class StripNormalizer : public Normalizer {
 public:
  explicit StripNormalizer(const Component& component)
      : left_(component.flag("strip_left", true)), right_(component.flag("strip_right", true)) {}

  void apply(WorkingText& text) const override {
    if (left_ && right_) {
      strip(text, true, true);
    } else {
      if (left_) strip(text, true, false);
      if (right_) strip(text, false, true);
    }
  }

 private:
  static void strip(WorkingText& text, bool left, bool right) {
    const Unicode& unicode = Unicode::instance();
    const std::string_view old = text.text();
    size_t begin = 0;
    size_t leading = 0;
    while (left && begin < old.size()) {
      size_t after = begin;
      if (!unicode.is(utf8::next(old, after), unicode::kSpace)) break;
      begin = after;
      ++leading;
    }
    size_t end = old.size();
    size_t trailing = 0;
    while (right && end > begin) {
      size_t last = utf8::before(old, end);
      end = last;
      if (!unicode.is(utf8::next(old, last), unicode::kSpace)) {
        end = last;
        break;
      }
      ++trailing;
    }
    if (leading == 0 && trailing == 0) return;
    std::vector<Change>& changes = text.changes();
    for (size_t at = begin; at < end;) changes.push_back({utf8::next(old, at), 0});
    text.transform(changes, leading);
  }

  bool left_;
  bool right_;
};

class StripAccents : public Normalizer {
  void apply(WorkingText& text) const override {
    const Unicode& unicode = Unicode::instance();
    filter(text, [&](char32_t c) { return !unicode.is(c, unicode::kMark); });
  }
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(const Component& component) : prepended_(component.at("prepend").text()) {}

  void apply(WorkingText& text) const override {
    if (text.text().empty()) return;
    // It comes from the first code point.
    const Bytes origin = text.tracked() ? text.origin(0) : Bytes{};
    text.begin();
    text.put(prepended_, origin);
    text.copy(0, text.text().size());
    text.finish();
  }

 private:
  std::string prepended_;
};

class Nmt : public Normalizer {
  void apply(WorkingText& text) const override {
    filter(text, [](char32_t c) {
      return !((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
               c == 0x8f || c == 0x9f);
    });
    map(text, [](char32_t c) {
      const bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                         (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 ||
                         c == 0x2581 || c == 0xfeff || c == 0xfffd;
      return space ? U' ' : c;
    });
  }
};

class ByteLevelNormalizer : public Normalizer {
  void apply(WorkingText& text) const override {
    if (!text.text().empty()) to_byte_letters(text);
  }
};

}  // namespace

NormalizerPtr read_normalizers(const Component& component) {
  return std::make_unique<NormalizerSequence>(component);
}

NormalizerPtr read_simple_normalizer(const std::string& kind, const Component& component) {
  if (kind == "Lowercase") return std::make_unique<Lowercase>();
  if (kind == "Strip") return std::make_unique<StripNormalizer>(component);
  if (kind == "StripAccents") return std::make_unique<StripAccents>();
  if (kind == "Prepend") return std::make_unique<Prepend>(component);
  if (kind == "Nmt") return std::make_unique<Nmt>();
  if (kind == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  return nullptr;
}

}  // namespace levin::text
