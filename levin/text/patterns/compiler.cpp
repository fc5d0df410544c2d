// Expressions become programs.
#include "levin/base/check.h"
#include "levin/text/patterns/program.h"

namespace levin::text {
namespace {

using Kind = Expression::Kind;
using Greed = Expression::Greed;

constexpr size_t kMostInstructions = 50'000;

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
    LEVIN_CHECK(
        length < kMostInstructions, "text.pattern",
        "a regular expression is too long: its repetitions expand to more than {} instructions",
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

  /// In a lookbehind each alternative has its own width: they are tried one by one.
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
  /// The program goes on here if the attempt fails, or is not the first choice.
  void leave(uint32_t attempt, Greed greed) {
    at(attempt).a = here();
    at(attempt).greed = greed;
  }

  Program program_;
  size_t emitted_ = 0;
};

}  // namespace

Program compile(const Expression& expression) { return Compiler().compile(expression); }

}  // namespace levin::text
