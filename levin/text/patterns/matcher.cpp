// The general matcher: an expression becomes a program, which runs with its own stack of places to go back to. Foreign
// files bring expressions, so that the steps of a search are bounded.
#include <algorithm>
#include <optional>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/text/patterns/expression.h"
#include "levin/text/patterns/pattern.h"
#include "levin/text/unicode/utf8.h"

namespace levin::text {
namespace {

using Kind = Expression::Kind;
using Greed = Expression::Greed;
using unicode::Unicode;

constexpr size_t kMostInstructions = 50'000;

struct Instruction {
  enum class Code : uint8_t {
    kSet,        // one code point of sets[a]
    kRepeatSet,  // code points of sets[a], b to c of them
    kTry,        // go on behind, and from a where that fails
    kJump,       // to a
    kMark,       // remember the place in slots[a]
    kAdvanced,   // go on only where the place is another than in slots[a]
    kAtomic,     // run what follows up to kDone; go on at a
    kLook,       // the same, forwards or by b code points back; negated: c
    kAssert,     // Expression::Kind in a, negated: c
    kDone
  };
  Code code;
  Greed greed = Greed::kGreedy;
  uint32_t a = 0;
  int32_t b = 0;
  int32_t c = 0;
};

struct Program {
  std::vector<Instruction> instructions;
  std::vector<CodeSet> sets;
  uint32_t slots = 0;
};

class Compiler {
 public:
  Program compile(const Expression& expression) {
    emit(expression);
    add(Instruction::Code::kDone);
    return std::move(program_);
  }

 private:
  using Code = Instruction::Code;

  uint32_t here() const { return static_cast<uint32_t>(program_.instructions.size()); }
  /// Repetitions in each other multiply, those of nothing too.
  static void check_length(size_t length) {
    LEVIN_CHECK(length < kMostInstructions, "text.pattern",
                "an expression is too long: its repetitions make more than {} steps of it",
                kMostInstructions);
  }
  Instruction& add(Code code, uint32_t a = 0) {
    check_length(here());
    program_.instructions.push_back({code, Greed::kGreedy, a, 0, 0});
    return program_.instructions.back();
  }
  Instruction& at(uint32_t place) { return program_.instructions[place]; }

  uint32_t set_of(const Ranges& ranges) {
    for (size_t i = 0; i < program_.sets.size(); ++i) {
      if (program_.sets[i].ranges() == ranges) return static_cast<uint32_t>(i);
    }
    program_.sets.emplace_back(ranges);
    return static_cast<uint32_t>(program_.sets.size() - 1);
  }

  void emit(const Expression& expression) {
    check_length(++emitted_);
    switch (expression.kind) {
      case Kind::kSequence:
        for (const ExpressionPtr& part : expression.parts) emit(*part);
        break;
      case Kind::kAlternatives:
        emit_alternatives(expression);
        break;
      case Kind::kSet:
        add(Code::kSet, set_of(expression.set));
        break;
      case Kind::kRepeat:
        emit_repeat(expression);
        break;
      case Kind::kAtomic:
        emit_inner(Code::kAtomic, *expression.parts.front());
        break;
      case Kind::kLookAhead:
      case Kind::kLookBehind:
        emit_look(expression);
        break;
      default:
        add(Code::kAssert, static_cast<uint32_t>(expression.kind)).c = expression.negated;
    }
  }

  void emit_alternatives(const Expression& expression) {
    std::vector<uint32_t> ends;
    for (size_t i = 0; i < expression.parts.size(); ++i) {
      const bool last = i + 1 == expression.parts.size();
      const uint32_t attempt = here();
      if (!last) add(Code::kTry);
      emit(*expression.parts[i]);
      if (last) break;
      ends.push_back(here());
      add(Code::kJump);
      at(attempt).a = here();
    }
    for (const uint32_t end : ends) at(end).a = here();
  }

  void emit_inner(Code code, const Expression& inside) {
    const uint32_t begin = here();
    add(code);
    emit(inside);
    add(Code::kDone);
    at(begin).a = here();
  }

  /// Behind, each alternative has its own width: they are tried one by one.
  void emit_look(const Expression& expression) {
    const Expression& inside = *expression.parts.front();
    const bool behind = expression.kind == Kind::kLookBehind;
    if (!behind || inside.width()) {
      const uint32_t begin = here();
      emit_inner(Code::kLook, inside);
      at(begin).b = behind ? *inside.width() : 0;
      at(begin).c = expression.negated;
      return;
    }
    std::vector<uint32_t> ends;
    for (size_t i = 0; i < inside.parts.size(); ++i) {
      const bool last = i + 1 == inside.parts.size();
      const uint32_t attempt = here();
      if (!last && !expression.negated) add(Code::kTry);
      const uint32_t begin = here();
      emit_inner(Code::kLook, *inside.parts[i]);
      at(begin).b = *inside.parts[i]->width();
      at(begin).c = expression.negated;
      if (last || expression.negated) continue;
      ends.push_back(here());
      add(Code::kJump);
      at(attempt).a = here();
    }
    for (const uint32_t end : ends) at(end).a = here();
  }

  void emit_repeat(const Expression& expression) {
    const Expression& inside = *expression.parts.front();
    if (expression.greed == Greed::kPossessive && inside.kind != Kind::kSet) {
      const uint32_t begin = here();
      add(Code::kAtomic);
      emit_times(expression, inside, Greed::kGreedy);
      add(Code::kDone);
      at(begin).a = here();
      return;
    }
    if (inside.kind == Kind::kSet) {
      Instruction& repeat = add(Code::kRepeatSet, set_of(inside.set));
      repeat.greed = expression.greed;
      repeat.b = expression.least;
      repeat.c = expression.most;
      return;
    }
    emit_times(expression, inside, expression.greed);
  }

  void emit_times(const Expression& expression, const Expression& inside, Greed greed) {
    for (int i = 0; i < expression.least; ++i) emit(inside);
    if (expression.most < 0) {
      const uint32_t begin = here();
      add(Code::kTry);
      const uint32_t slot = program_.slots++;
      add(Code::kMark, slot);
      emit(inside);
      add(Code::kAdvanced, slot);
      add(Code::kJump, begin);
      leave(begin, greed);
      return;
    }
    std::vector<uint32_t> attempts;
    for (int i = expression.least; i < expression.most; ++i) {
      attempts.push_back(here());
      add(Code::kTry);
      emit(inside);
    }
    for (const uint32_t attempt : attempts) leave(attempt, greed);
  }
  /// Where the attempt fails, or is not wanted first, it goes on here.
  void leave(uint32_t attempt, Greed greed) {
    at(attempt).a = here();
    at(attempt).greed = greed;
  }

  Program program_;
  size_t emitted_ = 0;
};

/// A run of a program over a text.
class ProgramRun {
 public:
  ProgramRun(const Program& program, std::string_view text)
      : program_(program),
        text_(text),
        unicode_(Unicode::instance()),
        slots_(program.slots),
        steps_left_(static_cast<int64_t>(200'000 + 1000 * text.size())) {}

  /// The end of the match that begins there.
  std::optional<size_t> match(size_t at) { return run(0, at); }

 private:
  using Code = Instruction::Code;

  /// To go back to: an instruction with a place; a shorter (or longer) run of a set; or what a slot was.
  struct Choice {
    enum class Kind : uint8_t { kTry, kFewer, kMore, kSlot } kind;
    uint32_t instruction;
    size_t at;
    size_t limit;  // of kFewer: least; of kMore: how many more there may be; of kSlot: what it was
  };

  std::optional<size_t> run(uint32_t instruction, size_t at) {
    const size_t bottom = choices_.size();
    while (true) {
      LEVIN_CHECK(steps_left_-- > 0, "text.pattern",
                  "an expression takes too many steps on a text of {} bytes; write it without "
                  "repetitions in each other",
                  text_.size());
      bool fine = true;
      const Instruction& step = program_.instructions[instruction];
      switch (step.code) {
        case Code::kSet:
          fine = at < text_.size() && program_.sets[step.a].has(utf8::next(text_, at));
          ++instruction;
          break;
        case Code::kRepeatSet:
          fine = repeat(step, instruction, at);
          ++instruction;
          break;
        case Code::kTry:
          if (step.greed == Greed::kLazy) {
            choices_.push_back({Choice::Kind::kTry, instruction + 1, at, 0});
            instruction = step.a;
          } else {
            choices_.push_back({Choice::Kind::kTry, step.a, at, 0});
            ++instruction;
          }
          break;
        case Code::kJump:
          instruction = step.a;
          break;
        case Code::kMark:
          choices_.push_back({Choice::Kind::kSlot, step.a, 0, slots_[step.a]});
          slots_[step.a] = at;
          ++instruction;
          break;
        case Code::kAdvanced:
          // An empty round of a loop ends it.
          instruction += slots_[step.a] == at ? 2 : 1;
          break;
        case Code::kAtomic: {
          const auto end = run(instruction + 1, at);
          fine = end.has_value();
          at = end.value_or(at);
          instruction = step.a;
          break;
        }
        case Code::kLook:
          fine = look(step, instruction, at);
          instruction = step.a;
          break;
        case Code::kAssert:
          fine = holds(static_cast<Kind>(step.a), at) != (step.c != 0);
          ++instruction;
          break;
        case Code::kDone:
          drop(bottom);
          return at;
      }
      if (!fine && !go_back(bottom, instruction, at)) return std::nullopt;
    }
  }

  bool repeat(const Instruction& step, uint32_t instruction, size_t& at) {
    const CodeSet& set = program_.sets[step.a];
    const size_t most = step.c < 0 ? ~size_t{0} : static_cast<size_t>(step.c);
    const auto least = static_cast<size_t>(step.b);
    const size_t wanted = step.greed == Greed::kLazy ? least : most;
    size_t count = 0;
    size_t shortest = at;
    while (count < wanted && at < text_.size()) {
      size_t next = at;
      if (!set.has(utf8::next(text_, next))) break;
      at = next;
      if (++count == least) shortest = at;
    }
    steps_left_ -= static_cast<int64_t>(count / 8);
    if (count < least) return false;
    if (step.greed == Greed::kLazy) {
      if (most > least) {
        choices_.push_back({Choice::Kind::kMore, instruction, at, most - least});
      }
    } else if (step.greed == Greed::kGreedy && at > shortest) {
      choices_.push_back({Choice::Kind::kFewer, instruction, at, shortest});
    }
    return true;
  }

  bool look(const Instruction& step, uint32_t instruction, size_t at) {
    for (int32_t i = 0; i < step.b; ++i) {
      if (at == 0) return step.c != 0;
      at = utf8::before(text_, at);
    }
    return run(instruction + 1, at).has_value() != (step.c != 0);
  }

  bool holds(Kind kind, size_t at) const {
    const auto is_word = [&](size_t place) {
      return unicode_.is(utf8::next(text_, place), unicode::kWord);
    };
    switch (kind) {
      case Kind::kLineBegin:
        return at == 0 || (text_[at - 1] == '\n' && at < text_.size());
      case Kind::kLineEnd:
        return at == text_.size() || text_[at] == '\n';
      case Kind::kTextBegin:
        return at == 0;
      case Kind::kTextEnd:
        return at == text_.size();
      case Kind::kTextLastEnd:
        return at == text_.size() || (at + 1 == text_.size() && text_[at] == '\n');
      default: {
        const bool before = at > 0 && is_word(utf8::before(text_, at));
        const bool after = at < text_.size() && is_word(at);
        return before != after;
      }
    }
  }

  /// Forgets choices of a part that has matched; slots keep their values.
  void drop(size_t bottom) { choices_.resize(bottom); }

  bool go_back(size_t bottom, uint32_t& instruction, size_t& at) {
    while (choices_.size() > bottom) {
      Choice& choice = choices_.back();
      switch (choice.kind) {
        case Choice::Kind::kTry:
          instruction = choice.instruction;
          at = choice.at;
          choices_.pop_back();
          return true;
        case Choice::Kind::kSlot:
          slots_[choice.instruction] = choice.limit;
          choices_.pop_back();
          break;
        case Choice::Kind::kFewer:
          choice.at = utf8::before(text_, choice.at);
          instruction = choice.instruction + 1;
          at = choice.at;
          if (at <= choice.limit) choices_.pop_back();
          return true;
        case Choice::Kind::kMore: {
          const CodeSet& set = program_.sets[program_.instructions[choice.instruction].a];
          size_t next = choice.at;
          if (next >= text_.size() || !set.has(utf8::next(text_, next))) {
            choices_.pop_back();
            break;
          }
          instruction = choice.instruction + 1;
          at = choice.at = next;
          if (--choice.limit == 0) choices_.pop_back();
          return true;
        }
      }
    }
    return false;
  }

  const Program& program_;
  std::string_view text_;
  const Unicode& unicode_;
  std::vector<Choice> choices_;
  std::vector<size_t> slots_;
  int64_t steps_left_;
};

/// Adds what a match may begin with to `set`; true where it may be empty.
bool add_first(const Expression& expression, Ranges& set) {
  switch (expression.kind) {
    case Kind::kSet:
      set = united(set, expression.set);
      return false;
    case Kind::kSequence:
      return std::ranges::all_of(expression.parts,
                                 [&](const ExpressionPtr& part) { return add_first(*part, set); });
    case Kind::kAlternatives: {
      bool may_be_empty = false;
      for (const ExpressionPtr& part : expression.parts) {
        may_be_empty = add_first(*part, set) || may_be_empty;
      }
      return may_be_empty;
    }
    case Kind::kRepeat:
      if (expression.most == 0) return true;
      return add_first(*expression.parts.front(), set) || expression.least == 0;
    case Kind::kAtomic:
      return add_first(*expression.parts.front(), set);
    default:
      return true;
  }
}

class GeneralPattern : public Pattern {
 public:
  explicit GeneralPattern(std::string_view text) {
    const ExpressionPtr expression = parse_expression(text);
    program_ = Compiler().compile(*expression);
    Ranges first;
    may_be_empty_ = add_first(*expression, first);
    if (!may_be_empty_) first_ = CodeSet(std::move(first));
  }

  void find(std::string_view text, std::vector<Bytes>& matches) const override {
    ProgramRun run(program_, text);
    std::optional<size_t> last_end;
    for (size_t at = 0; at <= text.size();) {
      if (!may_be_empty_) {
        // Nothing begins at the end, nor where the first code point does not fit.
        if (at == text.size()) return;
        size_t next = at;
        if (!first_.has(utf8::next(text, next))) {
          at = next;
          continue;
        }
      }
      const auto end = run.match(at);
      // An empty match right behind another one is none.
      if (!end || (*end == at && last_end == at)) {
        at += at < text.size() ? utf8::length(text[at]) : 1;
        continue;
      }
      matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(*end)});
      at = *end;
      last_end = end;
    }
  }

  bool may_be_empty() const override { return may_be_empty_; }

 private:
  Program program_;
  CodeSet first_;
  bool may_be_empty_ = false;
};

/// A text as it stands.
class Literal : public Pattern {
 public:
  explicit Literal(std::string text) : text_(std::move(text)) {}

  void find(std::string_view text, std::vector<Bytes>& matches) const override {
    for (size_t at = text.find(text_); at != std::string_view::npos;
         at = text.find(text_, at + text_.size())) {
      matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + text_.size())});
    }
  }

 private:
  std::string text_;
};

}  // namespace

PatternPtr compile_expression(std::string_view expression) {
  return std::make_unique<GeneralPattern>(expression);
}

PatternPtr read_pattern(const Component& component) {
  if (component.has("String")) {
    std::string text = component.at("String").text();
    if (text.empty()) return compile_expression("");
    return std::make_unique<Literal>(std::move(text));
  }
  if (!component.has("Regex")) component.fail("is no pattern: it has neither 'String' nor 'Regex'");
  const std::string expression = component.at("Regex").text();
  if (PatternPtr scanner = known_scanner(expression)) return scanner;
  return compile_expression(expression);
}

}  // namespace levin::text
