#include "levin/text/patterns/code_set.h"

#include <algorithm>

namespace levin::text {
namespace {

Ranges sorted(Ranges ranges) {
  std::ranges::sort(ranges);
  Ranges joined;
  for (const auto& [begin, end] : ranges) {
    if (begin >= end) continue;
    if (!joined.empty() && begin <= joined.back().second) {
      joined.back().second = std::max(joined.back().second, end);
    } else {
      joined.emplace_back(begin, end);
    }
  }
  return joined;
}

bool contains(const Ranges& ranges, char32_t c) {
  const auto after = std::ranges::upper_bound(ranges, c, {}, &Range::first);
  return after != ranges.begin() && c < std::prev(after)->second;
}

}  // namespace

Ranges united(const Ranges& a, const Ranges& b) {
  Ranges both = a;
  both.insert(both.end(), b.begin(), b.end());
  return sorted(std::move(both));
}

Ranges complement(const Ranges& ranges) {
  Ranges others;
  char32_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (at < begin) others.emplace_back(at, begin);
    at = end;
  }
  if (at < unicode::kEnd) others.emplace_back(at, unicode::kEnd);
  return others;
}

Ranges intersected(const Ranges& a, const Ranges& b) {
  return complement(united(complement(a), complement(b)));
}

Ranges with_other_case(const Ranges& ranges) {
  const auto& unicode = unicode::Unicode::instance();
  Ranges more = ranges;
  unicode.for_each_with_other_case([&](char32_t c) {
    if (!contains(ranges, c)) return;
    for (const char32_t other : unicode.same_case(c)) more.emplace_back(other, other + 1);
  });
  return sorted(std::move(more));
}

CodeSet::CodeSet(Ranges ranges) : ranges_(std::move(ranges)), bits_(1024) {
  for (const auto& [begin, end] : ranges_) {
    for (char32_t c = begin; c < std::min<char32_t>(end, 0x10000);) {
      if ((c & 63) == 0 && c + 64 <= end) {
        bits_[c >> 6] = ~uint64_t{0};
        c += 64;
      } else {
        bits_[c >> 6] |= uint64_t{1} << (c & 63);
        ++c;
      }
    }
  }
}

bool CodeSet::has_beyond(char32_t c) const { return contains(ranges_, c); }

}  // namespace levin::text
