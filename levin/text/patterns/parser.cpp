#include <algorithm>

#include "levin/text/patterns/expression.h"
#include "levin/text/patterns/set_parser.h"

namespace levin::text {
namespace {

using Kind = Expression::Kind;
using Greed = Expression::Greed;

constexpr int kMostTimes = 1000;

class Parser : public SetParser {
 public:
  using SetParser::SetParser;

  ExpressionPtr parse() {
    ExpressionPtr all = alternatives();
    if (!done()) fail("an unmatched )");
    return all;
  }

 private:
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
    if (++depth_ > kMostDepth) fail("too deeply nested groups");
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
    if (!take(")")) fail("an unterminated group");
    return expression;
  }

  void skip_name() {
    while (!done() && text_[at_] != '>' && text_[at_] != '\'') ++at_;
    if (done()) fail("an unterminated name");
    ++at_;
  }

  void check_widths(const Expression& inside, size_t begin) {
    const auto fits = [](const ExpressionPtr& part) { return part->width().has_value(); };
    const bool fine = inside.kind == Kind::kAlternatives ? std::ranges::all_of(inside.parts, fits)
                                                         : inside.width().has_value();
    if (!fine) {
      at_ = begin;
      fail("a lookbehind without a fixed width");
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
        fail("an unknown kind of group");
      }
    }
    if (take(")")) {
      // The rest of the group, its alternatives included, is one part.
      return alternatives_after_options();
    }
    take(":");
    ExpressionPtr inside = alternatives();
    if (!take(")")) fail("an unterminated group");
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
    if (least > kMostTimes || most > kMostTimes) fail("more than 1000 repetitions");
    if (most >= 0 && least > most) fail("an interval in reverse order");
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
        fail("an unknown escape");
      default:
        break;
    }
    if (text_[at_] >= '1' && text_[at_] <= '9') fail("a backreference");
    if (take("O")) return make_plain_set({{0, unicode::kEnd}});
    if (take("N")) return make_plain_set(complement(one('\n')));
    // (?i) does not reach into a class that stands alone.
    Ranges set;
    if (take_class_escape(set)) return make_plain_set(std::move(set));
    return make_set(one(take_character_escape()));
  }

  bool dot_takes_all_ = false;
  bool extended_ = false;
};

}  // namespace

ExpressionPtr parse_expression(std::string_view expression) { return Parser(expression).parse(); }

}  // namespace levin::text
