// Programs run over texts.
#include "levin/base/check.h"
#include "levin/base/text/utf8.h"
#include "levin/text/patterns/program.h"

namespace levin::text {
namespace {

using Kind = Expression::Kind;
using Greed = Expression::Greed;

}  // namespace

ProgramRun::ProgramRun(const Program& program, std::string_view text)
    : program_(program),
      text_(text),
      unicode_(unicode::Unicode::instance()),
      slots_(program.slots),
      steps_left_(static_cast<int64_t>(200'000 + 1000 * text.size())) {}

std::optional<size_t> ProgramRun::run(uint32_t instruction, size_t at) {
  const size_t bottom = choices_.size();
  while (true) {
    LEVIN_CHECK(steps_left_-- > 0, "text.pattern",
                "a regular expression takes too many steps on a text of {} bytes; write it without "
                "nested repetitions",
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

bool ProgramRun::repeat(const Instruction& step, uint32_t instruction, size_t& at) {
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

bool ProgramRun::look(const Instruction& step, uint32_t instruction, size_t at) {
  for (int32_t i = 0; i < step.b; ++i) {
    if (at == 0) return step.c != 0;
    at = utf8::before(text_, at);
  }
  return run(instruction + 1, at).has_value() != (step.c != 0);
}

bool ProgramRun::holds(Kind kind, size_t at) const {
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

bool ProgramRun::go_back(size_t bottom, uint32_t& instruction, size_t& at) {
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

}  // namespace levin::text
