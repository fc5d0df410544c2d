#pragma once
// The building blocks of normalizers: keeping, replacing and adding code points. Not for users.
//
//   filter(text, [](char32_t c) { return c != 0; });

#include "levin/base/text/utf8.h"
#include "levin/text/working/working_text.h"

namespace levin::text {

/// Leaves out the code points that `keep` says no to.
template <class Keep>
void filter(WorkingText& text, const Keep& keep) {
  std::vector<Change>& changes = text.changes();
  size_t removed_first = 0;
  size_t removed = 0;
  const std::string_view old = text.text();
  for (size_t at = 0; at < old.size();) {
    const char32_t c = utf8::next(old, at);
    if (!keep(c)) {
      ++removed;
      if (changes.empty()) {
        ++removed_first;
      } else {
        --changes.back().replaces;
      }
    } else {
      changes.push_back({c, 0});
    }
  }
  if (removed > 0 || !text.stays()) text.transform(changes, removed_first);
}

/// Another code point for each.
template <class Map>
void map(WorkingText& text, const Map& mapped) {
  std::vector<Change>& changes = text.changes();
  bool changed = !text.stays();
  const std::string_view old = text.text();
  for (size_t at = 0; at < old.size();) {
    const char32_t c = utf8::next(old, at);
    changes.push_back({mapped(c), 0});
    changed = changed || changes.back().c != c;
  }
  if (changed) text.transform(changes);
}

/// Makes all letters small. A text that is small already stays unchanged.
void lowercase(WorkingText& text);

}  // namespace levin::text
