// The kinds of normalizers; BertNormalizer and Precompiled have sources of their own.
#include <algorithm>

#include "levin/text/normalizers/code_points.h"
#include "levin/text/normalizers/normalizer.h"
#include "levin/text/patterns/pattern.h"
#include "levin/text/unicode/byte_letters.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text {
namespace {

using unicode::NormalForm;
using unicode::Unicode;

Normalizer normalizer_sequence(const Component& component) {
  auto parts = read_parts(component.at("normalizers"), read_normalizer);
  const bool needs_origin = std::ranges::any_of(parts, &Normalizer::needs_origin);
  return {[parts = std::move(parts)](WorkingText& text) {
            for (const Normalizer& part : parts) part.apply(text);
          },
          needs_origin};
}

template <NormalForm form>
Normalizer in_normal_form(const Component&) {
  return {[](WorkingText& text) {
    if (!unicode::may_change(text.text(), form) && text.stays()) return;
    std::vector<Change>& changes = text.changes();
    unicode::normalize(text.text(), form, changes);
    text.transform(changes);
  }};
}

void strip_blanks(WorkingText& text, bool left, bool right) {
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

Normalizer strip_normalizer(const Component& component) {
  const bool left = component.flag("strip_left", true);
  const bool right = component.flag("strip_right", true);
  return {[=](WorkingText& text) { strip_blanks(text, left, right); }};
}

/// Another text for each match of a pattern.
Normalizer replace_normalizer(const Component& component) {
  const std::shared_ptr<const Pattern> pattern = read_pattern(component.at("pattern"));
  const auto replace = [=, content = component.at("content").text()](WorkingText& text) {
    std::vector<Bytes>& matches = text.scratch().matches;
    matches.clear();
    pattern->find(text.text(), matches);
    if (matches.empty()) return;
    text.begin();
    size_t at = 0;
    for (const Bytes match : matches) {
      text.copy(at, match.begin);
      // It comes from the last byte that it replaces, or from nowhere.
      Bytes origin = text.front();
      if (text.tracked() && match.end > 0) origin = text.origin(match.end - 1);
      text.put(content, origin);
      at = match.end;
    }
    text.copy(at, text.text().size());
    text.finish();
  };
  return {replace, pattern->may_be_empty()};
}

Normalizer prepend_normalizer(const Component& component) {
  return {[prepended = component.at("prepend").text()](WorkingText& text) {
    if (text.text().empty()) return;
    // It comes from the first code point.
    const Bytes origin = text.tracked() ? text.origin(0) : Bytes{};
    text.begin();
    text.put(prepended, origin);
    text.copy(0, text.text().size());
    text.finish();
  }};
}

void strip_accents(WorkingText& text) {
  const Unicode& unicode = Unicode::instance();
  filter(text, [&](char32_t c) { return !unicode.is(c, unicode::kMark); });
}

void clean_as_nmt(WorkingText& text) {
  filter(text, [](char32_t c) {
    return !((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
             c == 0x9f);
  });
  map(text, [](char32_t c) {
    const bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xfeff || c == 0xfffd;
    return space ? U' ' : c;
  });
}

/// Every byte as the letter that stands for it in byte-level vocabularies.
void to_byte_letters(WorkingText& text) {
  if (text.text().empty()) return;
  std::vector<Change>& changes = text.changes();
  for (const char byte : text.text()) {
    changes.push_back({byte_letter(static_cast<uint8_t>(byte)), utf8::is_inner(byte)});
  }
  text.transform(changes);
}

/// A kind without options.
template <void (*apply)(WorkingText&)>
Normalizer plain_normalizer(const Component&) {
  return {apply};
}

}  // namespace

Normalizer read_normalizer(const Component& component) {
  return read_kind<Normalizer>(component, "normalizer",
                               {{"Sequence", normalizer_sequence},
                                {"BertNormalizer", read_bert_normalizer},
                                {"NFC", in_normal_form<NormalForm::kNfc>},
                                {"NFD", in_normal_form<NormalForm::kNfd>},
                                {"NFKC", in_normal_form<NormalForm::kNfkc>},
                                {"NFKD", in_normal_form<NormalForm::kNfkd>},
                                {"Lowercase", plain_normalizer<lowercase>},
                                {"Strip", strip_normalizer},
                                {"StripAccents", plain_normalizer<strip_accents>},
                                {"Replace", replace_normalizer},
                                {"Prepend", prepend_normalizer},
                                {"Precompiled", read_precompiled},
                                {"Nmt", plain_normalizer<clean_as_nmt>},
                                {"ByteLevel", plain_normalizer<to_byte_letters>}});
}

}  // namespace levin::text
