#include "levin/text/unicode/unicode.h"

#include <algorithm>
#include <array>
#include <string>

#include "levin/text/unicode/base64.h"
#include "levin/text/unicode/tables.h"

namespace levin::text::unicode {
namespace {

/// Numbers out of a table, one after the other.
class Numbers {
 public:
  explicit Numbers(const char* table) : bytes_(from_base64(table).value()) {}

  bool done() const { return at_ == bytes_.size(); }
  uint32_t next() {
    uint32_t number = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      number |= static_cast<uint32_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return number;
    }
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

/// Puts code points that follow on each other into ranges.
class Collected {
 public:
  void add(char32_t begin, char32_t end) {
    if (!ranges_.empty() && ranges_.back().second == begin) {
      ranges_.back().second = end;
    } else {
      ranges_.emplace_back(begin, end);
    }
  }
  Ranges take() { return std::move(ranges_); }

 private:
  Ranges ranges_;
};

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  return plain;
}

constexpr std::array<std::string_view, 7> kPosixNames = {"alnum", "alpha", "lower", "upper",
                                                         "punct", "graph", "print"};

}  // namespace

const Unicode& Unicode::instance() {
  static const Unicode unicode;
  return unicode;
}

Unicode::Unicode()
    : canonical_(read_mapping(kCanonicalTable)),
      compatibility_(read_mapping(kCompatibilityTable)),
      lowercase_(read_mapping(kLowercaseTable)),
      folds_(read_folds()) {
  std::vector<uint32_t> palette;
  for (Numbers numbers(kPaletteTable); !numbers.done();) palette.push_back(numbers.next());
  // Blocks of 256 code points; blocks of one equal word are stored once.
  std::unordered_map<uint32_t, uint16_t> uniform;
  std::array<uint32_t, 256> block{};
  Numbers runs(kTraitsTable);
  uint32_t left = 0;
  uint32_t word = 0;
  for (size_t place = 0; place < places_.size(); ++place) {
    for (size_t i = 0; i < 256;) {
      if (left == 0) {
        left = runs.next();
        word = palette[runs.next()];
        runs_.emplace_back(static_cast<char32_t>(place << 8 | i), word);
      }
      const size_t count = std::min<size_t>(left, 256 - i);
      std::fill_n(block.begin() + static_cast<std::ptrdiff_t>(i), count, word);
      i += count;
      left -= static_cast<uint32_t>(count);
    }
    const auto next = static_cast<uint16_t>(blocks_.size() / 256);
    if (std::ranges::count(block, block[0]) == 256) {
      const auto [known, is_new] = uniform.emplace(block[0], next);
      places_[place] = known->second;
      if (!is_new) continue;
    }
    places_[place] = next;
    blocks_.insert(blocks_.end(), block.begin(), block.end());
  }
  char32_t at = 0;
  for (Numbers numbers(kCombiningClassesTable); !numbers.done();) {
    const uint32_t length = numbers.next();
    const auto number = static_cast<uint8_t>(numbers.next());
    for (uint32_t i = 0; number != 0 && i < length; ++i) classes_.emplace(at + i, number);
    at += length;
  }
  at = 0;
  for (Numbers numbers(kSplitScriptsTable); !numbers.done();) {
    const uint32_t length = numbers.next();
    split_scripts_.emplace_back(at, numbers.next());
    at += length;
  }
  for (Numbers numbers(kPairsTable); !numbers.done();) {
    const uint64_t first = numbers.next();
    const uint64_t second = numbers.next();
    pairs_.emplace(first << 32 | second, numbers.next());
  }
}

Unicode::Mapping Unicode::read_mapping(const char* table) {
  Mapping mapping;
  char32_t c = 0;
  for (Numbers numbers(table); !numbers.done();) {
    c += numbers.next();
    const uint32_t length = numbers.next();
    mapping.by_code.emplace(c, static_cast<uint32_t>(mapping.pool.size()));
    mapping.pool += static_cast<char32_t>(length);
    for (uint32_t i = 0; i < length; ++i) mapping.pool += static_cast<char32_t>(numbers.next());
  }
  return mapping;
}

Unicode::Mapping Unicode::read_folds() {
  Mapping mapping;
  for (Numbers numbers(kFoldsTable); !numbers.done();) {
    std::u32string group(numbers.next(), U'\0');
    for (char32_t& c : group) c = numbers.next();
    for (const char32_t c : group) {
      mapping.by_code.emplace(c, static_cast<uint32_t>(mapping.pool.size()));
      mapping.pool += static_cast<char32_t>(group.size() - 1);
      for (const char32_t other : group) {
        if (other != c) mapping.pool += other;
      }
    }
  }
  return mapping;
}

std::u32string_view Unicode::find(const Mapping& mapping, char32_t c) {
  const auto found = mapping.by_code.find(c);
  if (found == mapping.by_code.end()) return {};
  return std::u32string_view(mapping.pool).substr(found->second + 1, mapping.pool[found->second]);
}

uint8_t Unicode::combining_class(char32_t c) const {
  if (!is(c, kCombines)) return 0;
  return classes_.find(c)->second;
}

char32_t Unicode::composed(char32_t first, char32_t second) const {
  const auto found = pairs_.find(static_cast<uint64_t>(first) << 32 | second);
  return found == pairs_.end() ? 0 : found->second;
}

uint32_t Unicode::split_script(char32_t c) const {
  const auto after =
      std::ranges::upper_bound(split_scripts_, c, {}, [](auto& run) { return run.first; });
  return std::prev(after)->second;
}

Ranges Unicode::with_categories(uint32_t bits) const {
  Collected found;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const char32_t end = i + 1 < runs_.size() ? runs_[i + 1].first : kEnd;
    if (1U << (runs_[i].second & kCategoryMask) & bits) found.add(runs_[i].first, end);
  }
  return found.take();
}

Ranges Unicode::with_flag(uint32_t flag) const {
  Collected found;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const char32_t end = i + 1 < runs_.size() ? runs_[i + 1].first : kEnd;
    if (runs_[i].second & flag) found.add(runs_[i].first, end);
  }
  return found.take();
}

Ranges Unicode::script(std::string_view name) const {
  const std::string wanted = plain_name(name);
  std::string_view names = kScriptNamesTable;
  uint32_t number = 0;
  for (uint32_t i = 1; !names.empty() && number == 0; ++i) {
    const size_t blank = std::min(names.find(' '), names.size());
    if (plain_name(names.substr(0, blank)) == wanted) number = i;
    names.remove_prefix(std::min(blank + 1, names.size()));
  }
  Collected found;
  char32_t at = 0;
  for (Numbers numbers(kScriptsTable); number != 0 && !numbers.done();) {
    const uint32_t length = numbers.next();
    if (numbers.next() == number) found.add(at, at + length);
    at += length;
  }
  return found.take();
}

Ranges Unicode::posix(std::string_view name) const {
  Numbers numbers(kPosixTable);
  Collected found;
  for (const std::string_view known : kPosixNames) {
    const uint32_t borders = numbers.next();
    char32_t at = 0;
    char32_t begin = 0;
    for (uint32_t i = 0; i < borders; ++i) {
      at += numbers.next();
      if (i % 2 == 0) begin = at;
      if (i % 2 == 1 && known == name) found.add(begin, at);
    }
  }
  return found.take();
}

}  // namespace levin::text::unicode
