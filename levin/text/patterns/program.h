#pragma once
// Program: an expression as instructions, which run with their own stack of places to go back to. Foreign files bring
// expressions, so that the steps of a run are bounded.
// Not for users.
//
//   const Program program = compile(*parse_expression("a+"));
//   ProgramRun(program, "baa").match(1);   // 3

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "levin/text/patterns/expression.h"

namespace levin::text {

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
  Expression::Greed greed = Expression::Greed::kGreedy;
  uint32_t a = 0;
  int32_t b = 0;
  int32_t c = 0;
};

struct Program {
  std::vector<Instruction> instructions;
  std::vector<CodeSet> sets;
  uint32_t slots = 0;
};

/// Throws Error "text.pattern" where its repetitions make too many instructions.
Program compile(const Expression& expression);

/// A run of a program over a text. Throws Error "text.pattern" where it takes too many steps.
class ProgramRun {
 public:
  ProgramRun(const Program& program, std::string_view text);

  /// The end of the match that begins there.
  std::optional<size_t> match(size_t at) { return run(0, at); }

 private:
  using Code = Instruction::Code;

  /// To go back to: an instruction with a place; a shorter (or longer) run of a set; or what a slot was.
  struct Choice {
    enum class Kind : uint8_t { kTry, kFewer, kMore, kSlot } kind;
    uint32_t instruction;
    size_t at;
    size_t limit;  // kFewer: the least; kMore: how many more there may be; kSlot: the value before
  };

  std::optional<size_t> run(uint32_t instruction, size_t at);
  bool repeat(const Instruction& step, uint32_t instruction, size_t& at);
  bool look(const Instruction& step, uint32_t instruction, size_t at);
  bool holds(Expression::Kind kind, size_t at) const;
  /// Forgets choices of a part that has matched; slots keep their values.
  void drop(size_t bottom) { choices_.resize(bottom); }
  bool go_back(size_t bottom, uint32_t& instruction, size_t& at);

  const Program& program_;
  std::string_view text_;
  const unicode::Unicode& unicode_;
  std::vector<Choice> choices_;
  std::vector<size_t> slots_;
  int64_t steps_left_;
};

}  // namespace levin::text
