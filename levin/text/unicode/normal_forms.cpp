#include "levin/text/unicode/normal_forms.h"

#include <algorithm>
#include <optional>

#include "levin/base/text/utf8.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text::unicode {
namespace {

// Hangul syllables are arithmetic (Unicode, section 3.12).
constexpr char32_t kSyllables = 0xac00;
constexpr char32_t kLeading = 0x1100;
constexpr char32_t kVowels = 0x1161;
constexpr char32_t kTrailing = 0x11a7;
constexpr char32_t kNumVowels = 21;
constexpr char32_t kNumTrailing = 28;
constexpr char32_t kNumLeading = 19;
constexpr char32_t kNumSyllables = kNumLeading * kNumVowels * kNumTrailing;

constexpr bool in(char32_t c, char32_t begin, char32_t count) { return c - begin < count; }

bool is_compatible(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

bool is_composed(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }

void decompose(const Unicode& unicode, char32_t c, bool compatible, std::vector<Change>& out) {
  if (in(c, kSyllables, kNumSyllables)) {
    const char32_t place = c - kSyllables;
    out.push_back({kLeading + place / (kNumVowels * kNumTrailing), 0});
    out.push_back({kVowels + place % (kNumVowels * kNumTrailing) / kNumTrailing, 1});
    if (place % kNumTrailing != 0) out.push_back({kTrailing + place % kNumTrailing, 1});
    return;
  }
  const uint32_t traits = unicode.traits(c);
  std::u32string_view parts;
  if (compatible && (traits & kCompatibility)) {
    parts = unicode.compatibility(c);
  } else if (traits & kCanonical) {
    parts = unicode.canonical(c);
  }
  if (parts.empty()) {
    out.push_back({c, 0});
    return;
  }
  for (size_t i = 0; i < parts.size(); ++i) out.push_back({parts[i], i > 0 ? 1 : 0});
}

/// Runs of combining characters in the order of their classes, those of one class as they stand.
void reorder(const Unicode& unicode, std::vector<Change>& out, size_t begin) {
  std::vector<std::pair<uint8_t, size_t>> order;
  std::vector<Change> run;
  for (size_t at = begin; at < out.size(); ++at) {
    order.clear();
    size_t end = at;
    for (; end < out.size(); ++end) {
      const uint8_t number = unicode.combining_class(out[end].c);
      if (number == 0) break;
      order.emplace_back(number, end);
    }
    if (order.size() > 1) {
      std::ranges::sort(order);
      run.clear();
      for (const auto& [number, place] : order) run.push_back(out[place]);
      std::ranges::copy(run, out.begin() + static_cast<std::ptrdiff_t>(at));
    }
    at = end;
  }
}

char32_t compose(const Unicode& unicode, char32_t first, char32_t second) {
  if (in(first, kLeading, kNumLeading) && in(second, kVowels, kNumVowels)) {
    return kSyllables + ((first - kLeading) * kNumVowels + (second - kVowels)) * kNumTrailing;
  }
  if (in(first, kSyllables, kNumSyllables) && in(second, kTrailing + 1, kNumTrailing - 1) &&
      (first - kSyllables) % kNumTrailing == 0) {
    return first + (second - kTrailing);
  }
  return unicode.is(second, kSecond) ? unicode.composed(first, second) : 0;
}

/// Composes the contents of out from begin on.
void recompose(const Unicode& unicode, std::vector<Change>& out, size_t begin) {
  const std::vector<Change> parts(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end());
  out.resize(begin);
  std::optional<Change> starter;
  std::vector<Change> waiting;
  uint8_t last = 0;  // the class of the last that waits
  const auto flush = [&] {
    if (starter) out.push_back(*starter);
    out.insert(out.end(), waiting.begin(), waiting.end());
    waiting.clear();
    last = 0;
  };
  for (const Change& part : parts) {
    const uint8_t number = unicode.combining_class(part.c);
    if (!starter) {
      if (number == 0) {
        starter = part;
      } else {
        out.push_back(part);
      }
      continue;
    }
    const bool blocked = !waiting.empty() && last >= number;
    const char32_t whole = blocked ? 0 : compose(unicode, starter->c, part.c);
    if (whole != 0) {
      starter = Change{whole, starter->replaces + part.replaces - 1};
    } else if (number == 0) {
      flush();
      starter = part;
    } else {
      waiting.push_back(part);
      last = number;
    }
  }
  flush();
}

/// Code points that NFC takes apart and puts together again, and that do not combine with earlier
/// ones: "が", "é". Without a mark behind them they stay unchanged.
class Wholes {
 public:
  static const Wholes& instance() {
    static const Wholes wholes;
    return wholes;
  }
  bool has(char32_t c) const { return bits_[c / 64] >> c % 64 & 1; }

 private:
  Wholes() : bits_(kEnd / 64, 0) {
    const Unicode& unicode = Unicode::instance();
    std::vector<Change> parts;
    unicode.for_each_with_canonical([&](char32_t c) {
      parts.clear();
      decompose(unicode, c, /*compatible=*/false, parts);
      const bool reaches_back = unicode.is(parts.front().c, kSecond | kCombines);
      reorder(unicode, parts, 0);
      recompose(unicode, parts, 0);
      if (!reaches_back && parts.size() == 1 && parts.front().c == c) {
        bits_[c / 64] |= uint64_t{1} << c % 64;
      }
    });
  }

  std::vector<uint64_t> bits_;
};

uint32_t flags_of(NormalForm form) {
  uint32_t flags = kCanonical | kCombines;
  if (is_compatible(form)) flags |= kCompatibility;
  if (is_composed(form)) flags |= kSecond;
  return flags;
}

/// Code points below this have none of the flags.
char32_t first_of(NormalForm form) {
  if (is_compatible(form)) return 0xa0;
  // Code points below U+0300 that NFC decomposes and composes again come out unchanged.
  return form == NormalForm::kNfc ? 0x300 : 0xc0;
}

}  // namespace

bool may_change(std::string_view text, NormalForm form) {
  const Unicode& unicode = Unicode::instance();
  const uint32_t flags = flags_of(form);
  const char32_t first = first_of(form);
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const char32_t c = utf8::next(text, at);
    if (c < first) continue;
    const uint32_t traits = unicode.traits(c);
    if ((traits & flags) == 0) continue;
    // A whole stays one where nothing follows that has kSecond or kCombines, as the letters of a syllable have.
    if (is_composed(form) && in(c, kSyllables, kNumSyllables)) continue;
    const uint32_t others = traits & flags & ~uint32_t{kCanonical};
    if (!is_composed(form) || others != 0 || !Wholes::instance().has(c)) return true;
  }
  return false;
}

void normalize(std::string_view text, NormalForm form, std::vector<Change>& changes) {
  const Unicode& unicode = Unicode::instance();
  const uint32_t flags = flags_of(form);
  const bool compatible = is_compatible(form);
  // Nothing combines across code points that have none of the flags.
  size_t begin = changes.size();
  bool plain = true;
  const auto finish = [&] {
    if (plain) return;
    reorder(unicode, changes, begin);
    if (is_composed(form)) recompose(unicode, changes, begin);
  };
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8::next(text, at);
    if (c < 0x80 || (unicode.traits(c) & flags) == 0) {
      finish();
      begin = changes.size();
      plain = true;
      changes.push_back({c, 0});
    } else {
      plain = false;
      decompose(unicode, c, compatible, changes);
    }
  }
  finish();
}

}  // namespace levin::text::unicode
