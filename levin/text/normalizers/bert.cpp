// BertNormalizer: cleans, sets Chinese characters apart, takes accents off, makes small.
#include "levin/text/normalizers/code_points.h"
#include "levin/text/normalizers/normalizer.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text {
namespace {

using unicode::Unicode;

bool is_chinese(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

class BertNormalizer {
 public:
  explicit BertNormalizer(const Component& component)
      : clean_(component.flag("clean_text", true)),
        chinese_(component.flag("handle_chinese_chars", true)),
        lowercase_(component.flag("lowercase", true)),
        strip_(component.flag("strip_accents", lowercase_)) {}

  void operator()(WorkingText& text) const {
    if (text.tracked() || text.text().empty()) {
      apply_slowly(text);
    } else {
      apply_untracked(text);
    }
  }

 private:
  static void clean(WorkingText& text) {
    const Unicode& unicode = Unicode::instance();
    filter(text, [&](char32_t c) {
      return c != 0 && c != 0xfffd && !unicode.is(c, unicode::kBertControl);
    });
    map(text, [&](char32_t c) { return unicode.is(c, unicode::kSpace) ? U' ' : c; });
  }

  static void set_chinese_apart(WorkingText& text) {
    std::vector<Change>& changes = text.changes();
    bool found = !text.stays();
    for (size_t at = 0; at < text.text().size();) {
      const char32_t c = utf8::next(text.text(), at);
      if (is_chinese(c)) {
        found = true;
        changes.insert(changes.end(), {{U' ', 0}, {c, 1}, {U' ', 1}});
      } else {
        changes.push_back({c, 0});
      }
    }
    if (found) text.transform(changes);
  }

  static void strip_accents(WorkingText& text) {
    if (unicode::may_change(text.text(), unicode::NormalForm::kNfd) || !text.stays()) {
      std::vector<Change>& changes = text.changes();
      unicode::normalize(text.text(), unicode::NormalForm::kNfd, changes);
      text.transform(changes);
    }
    const Unicode& unicode = Unicode::instance();
    filter(text, [&](char32_t c) { return !unicode.is(c, unicode::kBertMark); });
  }

  /// Does all four in one pass without offsets, for the ids alone.
  void apply_untracked(WorkingText& text) const {
    constexpr uint32_t kInteresting = unicode::kBertControl | unicode::kSpace |
                                      unicode::kCanonical | unicode::kCombines |
                                      unicode::kBertMark | unicode::kLowers;
    const Unicode& unicode = Unicode::instance();
    const std::string_view old = text.text();
    std::string& out = text.scratch().bytes;
    out.clear();
    for (size_t at = 0; at < old.size();) {
      const auto byte = static_cast<uint8_t>(old[at]);
      if (byte < 0x80) {
        ++at;
        if (clean_ && (byte < 0x20 || byte == 0x7f)) {
          if (byte == '\t' || byte == '\n' || byte == '\r') out += ' ';
        } else if (lowercase_ && byte >= 'A' && byte <= 'Z') {
          out += static_cast<char>(byte + 32);
        } else {
          out += static_cast<char>(byte);
        }
        continue;
      }
      const size_t begin = at;
      const char32_t c = utf8::next(old, at);
      const uint32_t traits = unicode.traits(c);
      if ((traits & kInteresting) == 0 && c != 0xfffd) {
        const bool apart = chinese_ && is_chinese(c);
        if (apart) out += ' ';
        out += old.substr(begin, at - begin);
        if (apart) out += ' ';
        continue;
      }
      if (strip_ && (traits & unicode::kCombines) && !(traits & unicode::kBertMark)) {
        // Its place among others may change: one after the other then.
        apply_slowly(text);
        return;
      }
      if (clean_ && (c == 0xfffd || (traits & unicode::kBertControl))) continue;
      if (clean_ && (traits & unicode::kSpace)) {
        out += ' ';
        continue;
      }
      put(out, c, traits);
    }
    text.begin();
    text.put(out, {});
    text.finish();
  }

  void put(std::string& out, char32_t c, uint32_t traits) const {
    const Unicode& unicode = Unicode::instance();
    const bool apart = chinese_ && is_chinese(c);
    if (apart) out += ' ';
    if (strip_ && (traits & unicode::kCanonical)) {
      std::vector<Change> parts;
      std::string one;
      utf8::append(one, c);
      unicode::normalize(one, unicode::NormalForm::kNfd, parts);
      for (const Change& part : parts) {
        if (!unicode.is(part.c, unicode::kBertMark)) put_small(out, part.c);
      }
    } else if (!strip_ || !(traits & unicode::kBertMark)) {
      put_small(out, c);
    }
    if (apart) out += ' ';
  }

  void put_small(std::string& out, char32_t c) const {
    const Unicode& unicode = Unicode::instance();
    if (lowercase_ && unicode.is(c, unicode::kLowers)) {
      for (const char32_t small : unicode.lowercase(c)) utf8::append(out, small);
    } else {
      utf8::append(out, c);
    }
  }

  void apply_slowly(WorkingText& text) const {
    if (clean_) clean(text);
    if (chinese_) set_chinese_apart(text);
    if (strip_) strip_accents(text);
    if (lowercase_) text::lowercase(text);
  }

  bool clean_;
  bool chinese_;
  bool lowercase_;
  bool strip_;
};

}  // namespace

Normalizer read_bert_normalizer(const Component& component) { return {BertNormalizer(component)}; }

}  // namespace levin::text
