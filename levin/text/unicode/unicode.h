#pragma once
// The properties of code points for tokenizers: categories and flags, in one word a code point. Not
// for users. The parts of Python's tokenizers follow different versions of Unicode, and each flag
// is that of its part (tests/oracle/unicode_tables.py).
//
//   const Unicode& unicode = Unicode::instance();
//   if (unicode.traits(c) & kSpace) ...

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace levin::text::unicode {

constexpr char32_t kEnd = 0x110000;

enum Category : uint32_t {  // Unicode 16, as Oniguruma has it
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCs,
  kCn
};

constexpr uint32_t kCategoryMask = 31;

enum Flag : uint32_t {
  kSpace = 1U << 5,            ///< white space: \s, and is_whitespace of Rust
  kWord = 1U << 6,             ///< \w of Oniguruma
  kPlainWord = 1U << 7,        ///< \w of Rust's regex: Whitespace and added tokens
  kNumeric = 1U << 8,          ///< Digits
  kBertPunctuation = 1U << 9,  ///< BertPreTokenizer, Punctuation
  kBertControl = 1U << 10,     ///< removed by clean_text
  kBertMark = 1U << 11,        ///< removed by strip_accents of Bert
  kMark = 1U << 12,            ///< removed by StripAccents
  kCanonical = 1U << 13,       ///< NFD changes it
  kCompatibility = 1U << 14,   ///< NFKD makes something else of it than NFD
  kCombines = 1U << 15,        ///< has a combining class above 0
  kSecond = 1U << 16,          ///< may compose with what stands before it
  kLowers = 1U << 17,          ///< Lowercase changes it
  kExtends = 1U << 18,         ///< extends a grapheme
  kPrepends = 1U << 19,        ///< takes the next code point into its grapheme
  kPictograph = 1U << 20,      ///< a zero-width joiner binds it to one before
  kControl = 1U << 21,         ///< a grapheme of its own
  kConsonant = 1U << 22,       ///< a consonant of scripts whose conjuncts are one grapheme
  kLinker = 1U << 23,          ///< binds consonants
  kConjunct = 1U << 24         ///< may stand within a conjunct
};

constexpr uint32_t bit(Category category) { return 1U << category; }
constexpr uint32_t kLetters = 0x1f;
constexpr uint32_t kMarks = 0xe0;
constexpr uint32_t kNumbers = 0x700;
constexpr uint32_t kPunctuations = 0x3f800;
constexpr uint32_t kSymbols = 0x3c0000;
constexpr uint32_t kSeparators = 0x1c00000;
constexpr uint32_t kOthers = 0x3e000000;

/// Code points from begin on, before end.
using Range = std::pair<char32_t, char32_t>;
using Ranges = std::vector<Range>;

class Unicode {
 public:
  /// The one set of constants there is, unpacked when it is first asked for.
  static const Unicode& instance();

  uint32_t traits(char32_t c) const { return blocks_[places_[c >> 8] << 8 | (c & 0xff)]; }
  bool is(char32_t c, uint32_t flags) const { return (traits(c) & flags) != 0; }
  uint32_t category_bit(char32_t c) const { return 1U << (traits(c) & kCategoryMask); }
  uint8_t combining_class(char32_t c) const;

  /// Empty if the code point stays unchanged (Hangul is arithmetic, see normal_forms).
  std::u32string_view canonical(char32_t c) const { return find(canonical_, c); }
  std::u32string_view compatibility(char32_t c) const { return find(compatibility_, c); }
  std::u32string_view lowercase(char32_t c) const { return find(lowercase_, c); }
  /// Calls visit with each that NFD changes, Hangul apart.
  template <class Visit>
  void for_each_with_canonical(const Visit& visit) const {
    for (const auto& [c, place] : canonical_.by_code) visit(c);
  }
  /// 0 where they do not compose.
  char32_t composed(char32_t first, char32_t second) const;

  /// The class of UnicodeScripts; 0 goes with any.
  uint32_t split_script(char32_t c) const;

  // For classes of patterns.
  Ranges with_categories(uint32_t bits) const;
  Ranges with_flag(uint32_t flag) const;
  /// Returns the set for Oniguruma's name in lower case without blanks, "_" and "-"; empty if there
  /// is none.
  Ranges script(std::string_view name) const;
  /// alnum, alpha, lower, upper, punct, graph or print, of Oniguruma.
  Ranges posix(std::string_view name) const;
  /// Others that are the same to (?i), in order; empty where there are none.
  std::u32string_view same_case(char32_t c) const { return find(folds_, c); }
  /// Calls visit with each that has some.
  template <class Visit>
  void for_each_with_other_case(const Visit& visit) const {
    for (const auto& [c, place] : folds_.by_code) visit(c);
  }

 private:
  struct Mapping {
    std::u32string pool;  // length, then code points
    std::unordered_map<char32_t, uint32_t> by_code;
  };

  Unicode();
  static Mapping read_mapping(const char* table);
  static Mapping read_folds();
  static std::u32string_view find(const Mapping& mapping, char32_t c);

  std::array<uint16_t, kEnd / 256> places_{};
  std::vector<std::pair<char32_t, uint32_t>> runs_;  // begin of a run, its word
  std::vector<uint32_t> blocks_;
  std::unordered_map<char32_t, uint8_t> classes_;
  std::vector<std::pair<char32_t, uint32_t>> split_scripts_;  // begin of a run, class
  std::unordered_map<uint64_t, char32_t> pairs_;
  Mapping canonical_, compatibility_, lowercase_, folds_;
};

}  // namespace levin::text::unicode
