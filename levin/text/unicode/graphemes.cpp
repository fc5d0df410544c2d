#include "levin/text/unicode/graphemes.h"

#include "levin/base/text/utf8.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text::unicode {
namespace {

enum class Hangul { kNone, kL, kV, kT, kLv, kLvt };

Hangul hangul(char32_t c) {
  if (c < 0x1100) return Hangul::kNone;
  if (c <= 0x115f || (c >= 0xa960 && c <= 0xa97c)) return Hangul::kL;
  if (c <= 0x11a7 || (c >= 0xd7b0 && c <= 0xd7c6)) return Hangul::kV;
  if (c <= 0x11ff || (c >= 0xd7cb && c <= 0xd7fb)) return Hangul::kT;
  if (c >= 0xac00 && c <= 0xd7a3) return (c - 0xac00) % 28 == 0 ? Hangul::kLv : Hangul::kLvt;
  return Hangul::kNone;
}

bool joins(Hangul left, Hangul right) {
  switch (left) {
    case Hangul::kL:
      return right != Hangul::kNone && right != Hangul::kT;
    case Hangul::kV:
    case Hangul::kLv:
      return right == Hangul::kV || right == Hangul::kT;
    case Hangul::kT:
    case Hangul::kLvt:
      return right == Hangul::kT;
    case Hangul::kNone:
      return false;
  }
  return false;
}

bool is_regional(char32_t c) { return c >= 0x1f1e6 && c <= 0x1f1ff; }

constexpr char32_t kJoiner = 0x200d;

}  // namespace

size_t grapheme_end(std::string_view text, size_t at) {
  const Unicode& unicode = Unicode::instance();
  char32_t last = utf8::next(text, at);
  uint32_t traits = unicode.traits(last);
  // The state before this place: after a pictograph, a consonant, a consonant with a linker, one regional sign.
  bool pictograph = (traits & kPictograph) != 0;
  bool consonant = (traits & kConsonant) != 0;
  bool linked = false;
  bool regional = is_regional(last);
  while (at < text.size()) {
    size_t after = at;
    const char32_t c = utf8::next(text, after);
    if (last == '\r' && c == '\n') return after;
    const uint32_t next = unicode.traits(c);
    if ((traits & kControl) || (next & kControl)) return at;
    if (next & kExtends) {
      linked = consonant && (linked || (next & kLinker)) && (next & (kLinker | kConjunct));
      if (!(next & (kLinker | kConjunct))) consonant = false;
      regional = false;
    } else {
      const bool joined = joins(hangul(last), hangul(c)) || (traits & kPrepends) ||
                          (consonant && linked && (next & kConsonant)) ||
                          (pictograph && last == kJoiner && (next & kPictograph)) ||
                          (regional && is_regional(c));
      if (!joined) return at;
      regional = !regional && is_regional(c);
      pictograph = (next & kPictograph) != 0;
      consonant = (next & kConsonant) != 0;
      linked = false;
    }
    last = c;
    traits = next;
    at = after;
  }
  return at;
}

}  // namespace levin::text::unicode
