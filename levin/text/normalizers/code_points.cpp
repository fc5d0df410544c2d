#include "levin/text/normalizers/code_points.h"

#include "levin/text/unicode/unicode.h"

namespace levin::text {

void lowercase(WorkingText& text) {
  const auto& unicode = unicode::Unicode::instance();
  const std::string_view old = text.text();
  const auto is_large = [&](size_t& at) {
    const auto byte = static_cast<uint8_t>(old[at]);
    if (byte < 0x80) {
      ++at;
      return byte >= 'A' && byte <= 'Z';
    }
    return unicode.is(utf8::next(old, at), unicode::kLowers);
  };
  bool changed = !text.stays();
  for (size_t at = 0; at < old.size() && !changed;) changed = is_large(at);
  if (!changed) return;
  std::vector<Change>& changes = text.changes();
  for (size_t at = 0; at < old.size();) {
    const char32_t c = utf8::next(old, at);
    if (c < 0x80) {
      changes.push_back({c >= 'A' && c <= 'Z' ? c + 32 : c, 0});
    } else if (!unicode.is(c, unicode::kLowers)) {
      changes.push_back({c, 0});
    } else {
      int place = 0;
      for (const char32_t small : unicode.lowercase(c)) changes.push_back({small, place++ > 0});
    }
  }
  text.transform(changes);
}

}  // namespace levin::text
