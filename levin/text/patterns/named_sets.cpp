// The sets of code points that have names.
#include "levin/text/patterns/set_parser.h"

namespace levin::text {
namespace {

struct Named {
  std::string_view name;
  uint32_t bits;
};
constexpr Named kCategories[] = {{"l", unicode::kLetters},
                                 {"letter", unicode::kLetters},
                                 {"m", unicode::kMarks},
                                 {"mark", unicode::kMarks},
                                 {"n", unicode::kNumbers},
                                 {"number", unicode::kNumbers},
                                 {"p", unicode::kPunctuations},
                                 {"punctuation", unicode::kPunctuations},
                                 {"s", unicode::kSymbols},
                                 {"symbol", unicode::kSymbols},
                                 {"z", unicode::kSeparators},
                                 {"separator", unicode::kSeparators},
                                 {"c", unicode::kOthers},
                                 {"other", unicode::kOthers},
                                 {"lc", 7},
                                 {"lu", bit(unicode::kLu)},
                                 {"ll", bit(unicode::kLl)},
                                 {"lt", bit(unicode::kLt)},
                                 {"lm", bit(unicode::kLm)},
                                 {"lo", bit(unicode::kLo)},
                                 {"mn", bit(unicode::kMn)},
                                 {"mc", bit(unicode::kMc)},
                                 {"me", bit(unicode::kMe)},
                                 {"nd", bit(unicode::kNd)},
                                 {"nl", bit(unicode::kNl)},
                                 {"no", bit(unicode::kNo)},
                                 {"pc", bit(unicode::kPc)},
                                 {"pd", bit(unicode::kPd)},
                                 {"ps", bit(unicode::kPs)},
                                 {"pe", bit(unicode::kPe)},
                                 {"pi", bit(unicode::kPi)},
                                 {"pf", bit(unicode::kPf)},
                                 {"po", bit(unicode::kPo)},
                                 {"sm", bit(unicode::kSm)},
                                 {"sc", bit(unicode::kSc)},
                                 {"sk", bit(unicode::kSk)},
                                 {"so", bit(unicode::kSo)},
                                 {"zs", bit(unicode::kZs)},
                                 {"zl", bit(unicode::kZl)},
                                 {"zp", bit(unicode::kZp)},
                                 {"cc", bit(unicode::kCc)},
                                 {"cf", bit(unicode::kCf)},
                                 {"co", bit(unicode::kCo)},
                                 {"cs", bit(unicode::kCs)},
                                 {"cn", bit(unicode::kCn)},
                                 {"digit", bit(unicode::kNd)},
                                 {"cntrl", bit(unicode::kCc)}};

}  // namespace

Ranges named_set(std::string_view name) {
  const unicode::Unicode& unicode = unicode::Unicode::instance();
  for (const Named& category : kCategories) {
    if (category.name == name) return unicode.with_categories(category.bits);
  }
  if (name == "space" || name == "whitespace") return unicode.with_flag(unicode::kSpace);
  if (name == "word") return unicode.with_flag(unicode::kWord);
  if (name == "xdigit") return {{'0', '9' + 1}, {'A', 'F' + 1}, {'a', 'f' + 1}};
  if (name == "blank")
    return united(unicode.with_categories(bit(unicode::kZs)), {{'\t', '\t' + 1}});
  if (name == "ascii") return {{0, 0x80}};
  if (name == "any") return {{0, unicode::kEnd}};
  if (Ranges posix = unicode.posix(name); !posix.empty()) return posix;
  return unicode.script(name);
}

Ranges word_set_in_brackets() {
  // \w alone is asked of one table, which has the superscripts and fractions of Latin-1; brackets of another.
  const Ranges left_out = {{0xb2, 0xb4}, {0xb9, 0xba}, {0xbc, 0xbf}};
  return intersected(named_set("word"), complement(left_out));
}

}  // namespace levin::text
