#include <fmt/format.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/text/patterns/expression.h"
#include "levin/text/unicode/utf8.h"

namespace levin::text {
namespace {

using Kind = Expression::Kind;
using Greed = Expression::Greed;
using unicode::Unicode;

constexpr int kMostDepth = 100;
constexpr int kMostTimes = 1000;

Ranges one(char32_t c) { return {{c, c + 1}}; }

Ranges categories(uint32_t bits) { return Unicode::instance().with_categories(bits); }
Ranges white_space() { return Unicode::instance().with_flag(unicode::kSpace); }
Ranges word_letters() { return Unicode::instance().with_flag(unicode::kWord); }
Ranges hex_digits() { return {{'0', '9' + 1}, {'A', 'F' + 1}, {'a', 'f' + 1}}; }

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

/// The set of a name in \p{...} or [[:...:]], in lower case without blanks; empty where there is none.
Ranges named_set(std::string_view name) {
  const Unicode& unicode = Unicode::instance();
  for (const Named& category : kCategories) {
    if (category.name == name) return categories(category.bits);
  }
  if (name == "space" || name == "whitespace") return white_space();
  if (name == "word") return word_letters();
  if (name == "xdigit") return hex_digits();
  if (name == "blank") return united(categories(bit(unicode::kZs)), one('\t'));
  if (name == "ascii") return {{0, 0x80}};
  if (name == "any") return {{0, unicode::kEnd}};
  if (Ranges posix = unicode.posix(name); !posix.empty()) return posix;
  return unicode.script(name);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  ExpressionPtr parse() {
    ExpressionPtr all = alternatives();
    if (!done()) fail("an unmatched )");
    return all;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    LEVIN_FAIL("text.pattern",
               "'{}' holds {} at byte {}; levin knows Oniguruma's syntax but for that",
               printable(text_), what, at_);
  }

  bool done() const { return at_ >= text_.size(); }
  bool sees(std::string_view next) const { return text_.substr(at_).starts_with(next); }
  bool take(std::string_view next) {
    if (!sees(next)) return false;
    at_ += next.size();
    return true;
  }
  char32_t take_code_point() {
    if (done()) fail("an end");
    return utf8::next(text_, at_);
  }

  static ExpressionPtr make(Kind kind) {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    return expression;
  }
  static ExpressionPtr make(Kind kind, ExpressionPtr part) {
    ExpressionPtr expression = make(kind);
    expression->parts.push_back(std::move(part));
    return expression;
  }
  ExpressionPtr make_set(Ranges set) const {
    ExpressionPtr expression = make(Kind::kSet);
    expression->set = ignores_case_ ? with_other_case(set) : std::move(set);
    return expression;
  }

  ExpressionPtr alternatives() {
    if (++depth_ > kMostDepth) fail("too many groups in each other");
    // Options set within a group end with it; they reach over the alternatives that follow.
    const bool ignores_case = ignores_case_;
    const bool dot_takes_all = dot_takes_all_;
    const bool extended = extended_;
    ExpressionPtr all = make(Kind::kAlternatives);
    all->parts.push_back(sequence());
    while (take("|")) all->parts.push_back(sequence());
    ignores_case_ = ignores_case;
    dot_takes_all_ = dot_takes_all;
    extended_ = extended;
    --depth_;
    if (all->parts.size() == 1) return std::move(all->parts.front());
    return all;
  }

  ExpressionPtr sequence() {
    ExpressionPtr all = make(Kind::kSequence);
    while (!done() && !sees("|") && !sees(")")) {
      if (extended_ && skip_blank()) continue;
      if (take("(?#")) {
        while (!take(")")) take_code_point();
        continue;
      }
      if (ExpressionPtr part = atom()) all->parts.push_back(repeated(std::move(part)));
    }
    return all;
  }

  bool skip_blank() {
    if (take("#")) {
      while (!done() && !take("\n")) ++at_;
      return true;
    }
    const char c = text_[at_];
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\f' && c != '\v') return false;
    ++at_;
    return true;
  }

  /// Null for a group that only sets options.
  ExpressionPtr atom() {
    if (take("(")) return group();
    if (take("[")) return make_set_of(char_class());
    if (take("."))
      return make_plain_set(dot_takes_all_ ? Ranges{{0, unicode::kEnd}} : complement(one('\n')));
    if (take("^")) return make(Kind::kLineBegin);
    if (take("$")) return make(Kind::kLineEnd);
    if (sees("*") || sees("+") || sees("?")) fail("a repetition of nothing");
    if (take("\\")) return escape();
    return make_set(one(take_code_point()));
  }
  static ExpressionPtr make_plain_set(Ranges set) {
    ExpressionPtr expression = make(Kind::kSet);
    expression->set = std::move(set);
    return expression;
  }
  ExpressionPtr make_set_of(Ranges set) const { return make_plain_set(std::move(set)); }

  ExpressionPtr group() {
    ExpressionPtr expression;
    if (take("?=")) {
      expression = make(Kind::kLookAhead, alternatives());
    } else if (take("?!")) {
      expression = make(Kind::kLookAhead, alternatives());
      expression->negated = true;
    } else if (take("?<=") || sees("?<!")) {
      const bool negated = take("?<!");
      const size_t begin = at_;
      expression = make(Kind::kLookBehind, alternatives());
      expression->negated = negated;
      check_widths(*expression->parts.front(), begin);
    } else if (take("?>")) {
      expression = make(Kind::kAtomic, alternatives());
    } else {
      if (take("?<") || take("?'")) {
        skip_name();
      } else if (!take("?:") && take("?")) {
        return options();
      }
      expression = alternatives();
    }
    if (!take(")")) fail("a group without an end");
    return expression;
  }

  void skip_name() {
    while (!done() && text_[at_] != '>' && text_[at_] != '\'') ++at_;
    if (done()) fail("a name without an end");
    ++at_;
  }

  void check_widths(const Expression& inside, size_t begin) {
    const auto fits = [](const ExpressionPtr& part) { return part->width().has_value(); };
    const bool fine = inside.kind == Kind::kAlternatives ? std::ranges::all_of(inside.parts, fits)
                                                         : inside.width().has_value();
    if (!fine) {
      at_ = begin;
      fail("a look behind of no fixed width");
    }
  }

  /// (?imx-imx) for the rest of the group, or (?imx-imx:...).
  ExpressionPtr options() {
    const bool ignores_case = ignores_case_;
    const bool dot_takes_all = dot_takes_all_;
    const bool extended = extended_;
    bool on = true;
    while (!sees(")") && !sees(":")) {
      if (take("-")) {
        on = false;
      } else if (take("i")) {
        ignores_case_ = on;
      } else if (take("m")) {
        dot_takes_all_ = on;
      } else if (take("x")) {
        extended_ = on;
      } else {
        fail("a group of a kind that is not known");
      }
    }
    if (take(")")) {
      // The rest of the group, its alternatives included, is one part.
      return alternatives_after_options();
    }
    take(":");
    ExpressionPtr inside = alternatives();
    if (!take(")")) fail("a group without an end");
    ignores_case_ = ignores_case;
    dot_takes_all_ = dot_takes_all;
    extended_ = extended;
    return inside;
  }

  ExpressionPtr alternatives_after_options() {
    if (done() || sees(")")) return make(Kind::kSequence);
    return alternatives();
  }

  ExpressionPtr repeated(ExpressionPtr part) {
    while (true) {
      if (extended_ && !done() && skip_blank()) continue;
      int least = 0;
      int most = -1;
      bool interval = false;
      if (take("*")) {
      } else if (take("+")) {
        least = 1;
      } else if (take("?")) {
        most = 1;
      } else if (sees("{") && take_interval(least, most)) {
        interval = true;
      } else {
        return part;
      }
      ExpressionPtr repeat = make(Kind::kRepeat, std::move(part));
      repeat->least = least;
      repeat->most = most;
      const bool fixed = interval && least == most;
      if (!fixed && take("?")) {
        repeat->greed = Greed::kLazy;
      } else if (!interval && take("+")) {
        repeat->greed = Greed::kPossessive;
      }
      part = std::move(repeat);
    }
  }

  /// {n}, {n,}, {n,m}, {,m}; anything else is a text.
  bool take_interval(int& least, int& most) {
    size_t at = at_ + 1;
    const auto number = [&](int otherwise) {
      if (at >= text_.size() || text_[at] < '0' || text_[at] > '9') return otherwise;
      int value = 0;
      while (at < text_.size() && text_[at] >= '0' && text_[at] <= '9') {
        value = std::min(value * 10 + (text_[at++] - '0'), 1'000'000);
      }
      return value;
    };
    const int first = number(-2);
    int last = first;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      last = number(-1);
      if (first == -2 && last == -1) return false;
    } else if (first == -2) {
      return false;
    }
    if (at >= text_.size() || text_[at] != '}') return false;
    least = std::max(first, 0);
    most = last;
    if (least > kMostTimes || most > kMostTimes) fail("more repetitions than 1000");
    if (most >= 0 && least > most) fail("an interval from more to less");
    at_ = at + 1;
    return true;
  }

  ExpressionPtr escape() {
    if (done()) fail("a \\ at its end");
    switch (text_[at_]) {
      case 'A':
        ++at_;
        return make(Kind::kTextBegin);
      case 'z':
        ++at_;
        return make(Kind::kTextEnd);
      case 'Z':
        ++at_;
        return make(Kind::kTextLastEnd);
      case 'b':
      case 'B': {
        ExpressionPtr border = make(Kind::kWordBorder);
        border->negated = text_[at_++] == 'B';
        return border;
      }
      case 'R': {
        ++at_;
        ExpressionPtr both = make(Kind::kSequence);
        both->parts.push_back(make_plain_set(one('\r')));
        both->parts.push_back(make_plain_set(one('\n')));
        ExpressionPtr either = make(Kind::kAlternatives);
        either->parts.push_back(std::move(both));
        either->parts.push_back(make_plain_set({{'\n', '\r' + 1}, {0x85, 0x86}, {0x2028, 0x202a}}));
        return make(Kind::kAtomic, std::move(either));
      }
      case 'G':
      case 'K':
      case 'X':
      case 'k':
      case 'g':
      case 'y':
      case 'Y':
        fail("an escape that is not known");
      default:
        break;
    }
    if (text_[at_] >= '1' && text_[at_] <= '9') fail("a reference to a group");
    Ranges set;
    if (take_class_escape(set)) return make_set(std::move(set));
    return make_set(one(take_character_escape()));
  }

  /// \s, \p{...} and the like, behind the \.
  bool take_class_escape(Ranges& set) {
    const char letter = text_[at_];
    switch (letter) {
      case 's':
      case 'S':
        set = white_space();
        break;
      case 'w':
      case 'W':
        set = word_letters();
        break;
      case 'd':
      case 'D':
        set = categories(bit(unicode::kNd));
        break;
      case 'h':
      case 'H':
        set = hex_digits();
        break;
      case 'p':
      case 'P':
        ++at_;
        set = property();
        if (letter == 'P') set = complement(set);
        return true;
      default:
        return false;
    }
    ++at_;
    if (letter >= 'A' && letter <= 'Z') set = complement(set);
    return true;
  }

  Ranges property() {
    if (!take("{")) fail("a property without {");
    const bool negated = take("^");
    std::string name;
    while (!sees("}")) {
      if (done()) fail("a property without an end");
      const char c = text_[at_++];
      if (c != ' ' && c != '_' && c != '-')
        name += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    ++at_;
    const Ranges set = named_set(name);
    if (set.empty()) fail(fmt::format("the property '{}', which is not known,", printable(name)));
    return negated ? complement(set) : set;
  }

  char32_t take_character_escape() {
    const char32_t c = take_code_point();
    switch (c) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        return '\a';
      case 'e':
        return 0x1b;
      case 'x':
        return take("{") ? hex(8, true) : hex(2, false);
      case 'u':
        return hex(4, false);
      case '0':
        return octal();
      default:
        return c;
    }
  }

  char32_t hex(int most, bool braced) {
    char32_t value = 0;
    int count = 0;
    for (; count < most && !done(); ++count) {
      const char c = text_[at_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = std::min<char32_t>(value << 4 | static_cast<char32_t>(digit), unicode::kEnd);
      ++at_;
    }
    if ((braced && (count == 0 || !take("}"))) || value >= unicode::kEnd) fail("no code point");
    return value;
  }
  char32_t octal() {
    char32_t value = 0;
    for (int i = 0; i < 2 && !done() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
      value = value * 8 + static_cast<char32_t>(text_[at_++] - '0');
    }
    return value;
  }

  /// Behind the [.
  Ranges char_class() {
    if (++depth_ > kMostDepth) fail("too many classes in each other");
    const bool negated = take("^");
    Ranges left;  // of &&
    bool has_left = false;
    Ranges set;
    bool first = true;
    const auto combine = [&] {
      left = has_left ? intersected(left, set) : set;
      has_left = true;
      set.clear();
    };
    while (true) {
      if (done()) fail("a class without an end");
      if (sees("]") && !(first && text_.find(']', at_ + 1) != std::string_view::npos)) break;
      first = false;
      if (take("&&")) {
        combine();
        continue;
      }
      set = united(set, class_item());
    }
    ++at_;
    --depth_;
    combine();
    if (ignores_case_) left = with_other_case(left);
    return negated ? complement(left) : left;
  }

  Ranges class_item() {
    if (sees("[:")) {
      const size_t end = text_.find(":]", at_);
      if (end != std::string_view::npos) {
        std::string_view name = text_.substr(at_ + 2, end - at_ - 2);
        const bool negated = name.starts_with('^');
        if (negated) name.remove_prefix(1);
        const Ranges set = named_set(name);
        if (!set.empty()) {
          at_ = end + 2;
          return negated ? complement(set) : set;
        }
      }
    }
    if (take("[")) return char_class();
    Ranges set;
    char32_t begin = 0;
    if (take("\\")) {
      if (done()) fail("a class without an end");
      if (take_class_escape(set)) return set;
      begin = text_[at_] == 'b' ? (++at_, U'\b') : take_character_escape();
    } else {
      begin = take_code_point();
    }
    // A - is a range only between two code points.
    if (!sees("-") || text_.substr(at_ + 1).starts_with(']')) return one(begin);
    const size_t before = at_++;
    char32_t end = 0;
    if (done() || sees("[")) {
      at_ = before;
      return one(begin);
    }
    if (take("\\")) {
      if (done()) fail("a class without an end");
      if (take_class_escape(set)) {
        at_ = before;
        return one(begin);
      }
      end = take_character_escape();
    } else {
      end = take_code_point();
    }
    if (end < begin) fail("a range from more to less");
    return {{begin, end + 1}};
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool ignores_case_ = false;
  bool dot_takes_all_ = false;
  bool extended_ = false;
};

}  // namespace

std::optional<int> Expression::width() const {
  switch (kind) {
    case Kind::kSet:
      return 1;
    case Kind::kSequence: {
      int sum = 0;
      for (const ExpressionPtr& part : parts) {
        const auto width = part->width();
        if (!width || sum > 100'000) return std::nullopt;
        sum += *width;
      }
      return sum;
    }
    case Kind::kAlternatives: {
      const auto first = parts.front()->width();
      for (size_t i = 1; i < parts.size(); ++i) {
        if (parts[i]->width() != first) return std::nullopt;
      }
      return first;
    }
    case Kind::kRepeat: {
      const auto width = parts.front()->width();
      if (!width || least != most || *width > 1000) return std::nullopt;
      return *width * least;
    }
    case Kind::kAtomic:
      return parts.front()->width();
    default:
      return 0;
  }
}

ExpressionPtr parse_expression(std::string_view expression) { return Parser(expression).parse(); }

}  // namespace levin::text
