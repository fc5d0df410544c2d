// The general matcher, and patterns out of files.
#include <algorithm>
#include <optional>

#include "levin/base/text/utf8.h"
#include "levin/text/patterns/pattern.h"
#include "levin/text/patterns/program.h"

namespace levin::text {
namespace {

/// Adds what a match may begin with to `set`; true where it may be empty.
bool add_first(const Expression& expression, Ranges& set) {
  using Kind = Expression::Kind;
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
    program_ = compile(*expression);
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
      // An empty match right behind another one does not count.
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
  if (!component.has("Regex"))
    component.fail("is not a pattern: it has neither 'String' nor 'Regex'");
  const std::string expression = component.at("Regex").text();
  if (PatternPtr scanner = known_scanner(expression)) return scanner;
  return compile_expression(expression);
}

}  // namespace levin::text
