#include "levin/text/template/parsing/parser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "levin/base/options.h"
#include "levin/text/template/parsing/expression_parser.h"

namespace levin::text::jinja {
namespace {

using StatementPtr = std::unique_ptr<Statement>;
using Ends = std::initializer_list<std::string_view>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Program parse() {
    Program program;
    program.body = block({});
    if (!unknown_.empty()) {
      fail_at(unknown_[0].first, "there is no " + unknown_[0].second);
    }
    program.symbols = std::move(symbols_);
    program.has_generation = has_generation_;
    program.literals = std::move(literals_);
    return program;
  }

 private:
  /// Up to a tag that ends it, whose name is taken, or to the end of the template where there is no such tag.
  Block block(Ends ends) {
    const Deeper deeper(*this);
    Block body;
    while (now().kind != Kind::kEnd) {
      const Lexeme lexeme = take();
      if (lexeme.kind == Kind::kData) {
        StatementPtr data = make(Statement::Kind::kData, lexeme.line);
        data->text = lexeme.text;
        literals_ += lexeme.text + '\0';
        body.push_back(std::move(data));
      } else if (lexeme.kind == Kind::kVariableBegin) {
        StatementPtr output = make(Statement::Kind::kOutput, lexeme.line);
        output->expressions.push_back(tuple({}));
        expect(Kind::kVariableEnd);
        body.push_back(std::move(output));
      } else {
        if (now().kind != Kind::kName) fail_unexpected("the name of a tag");
        if (std::ranges::count(ends, now().text) > 0) {
          end_ = take().text;
          return body;
        }
        if (StatementPtr statement = this->statement(ends)) body.push_back(std::move(statement));
        expect(Kind::kBlockEnd);
      }
    }
    if (ends.size() > 0)
      fail(
          fmt::format("the template ends, wanted {}", fmt::join(ends.begin(), ends.end(), " or ")));
    return body;
  }
  /// The body of a tag that stands open.
  Block body(Ends ends) {
    skip_op(":");
    expect(Kind::kBlockEnd);
    return block(ends);
  }

  /// Parses a body that becomes a function in jinja2, so it cannot leave a surrounding loop.
  Block loopless_body(std::string_view end) {
    const int loops = std::exchange(loop_bodies_, 0);
    Block block = body({end});
    loop_bodies_ = loops;
    return block;
  }

  static StatementPtr make(Statement::Kind kind, int line) {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = line;
    return made;
  }

  StatementPtr statement(Ends ends) {
    const Lexeme tag = take();
    if (tag.text == "if") return if_(tag.line);
    if (tag.text == "for") return for_(tag.line);
    if (tag.text == "set") return set(tag.line);
    if (tag.text == "print") return print(tag.line);
    if (tag.text == "macro") return macro(tag.line);
    if (tag.text == "call") return call_block(tag.line);
    if (tag.text == "filter") return filter_block(tag.line);
    if (tag.text == "with") return with(tag.line);
    if (tag.text == "generation") return generation(tag.line);
    if (tag.text == "break" || tag.text == "continue") {
      if (loop_bodies_ == 0) fail_at(tag.line, fmt::format("'{}' is outside of a loop", tag.text));
      return make(tag.text == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue,
                  tag.line);
    }
    for (const std::string_view other :
         {"extends", "include", "import", "from", "block", "autoescape"}) {
      if (tag.text == other) {
        fail_at(tag.line,
                fmt::format("levin does not support the tag '{}' in a chat template", other));
      }
    }
    fail_at(tag.line, fmt::format("got the tag '{}'{}", printable(tag.text),
                                  ends.size() == 0
                                      ? ", which does not exist"
                                      : fmt::format(", wanted {}",
                                                    fmt::join(ends.begin(), ends.end(), " or "))));
  }

  StatementPtr if_(int line) {
    const size_t unknown = unknown_.size();
    StatementPtr made = make(Statement::Kind::kIf, line);
    while (true) {
      made->expressions.push_back(tuple({.conditions = false}));
      made->bodies.push_back(body({"elif", "else", "endif"}));
      if (end_ != "elif") break;
    }
    if (end_ == "else") made->bodies.push_back(body({"endif"}));
    unknown_.resize(unknown);
    return made;
  }

  StatementPtr for_(int line) {
    StatementPtr made = make(Statement::Kind::kFor, line);
    made->targets.push_back(target("in", false));
    expect_name("in");
    made->expressions.push_back(tuple({.conditions = false, .end = "recursive"}));
    if (skip_name("if")) made->expressions.push_back(expression());
    made->recursive = skip_name("recursive");
    loops_.push_back(made->recursive);
    ++loop_bodies_;
    made->bodies.push_back(body({"else", "endfor"}));
    --loop_bodies_;
    made->uses_loop = loops_.back();
    loops_.pop_back();
    if (end_ == "else") made->bodies.push_back(body({"endfor"}));
    return made;
  }

  StatementPtr set(int line) {
    StatementPtr made = make(Statement::Kind::kSet, line);
    made->targets.push_back(target("", true));
    if (skip_op("=")) {
      made->expressions.push_back(tuple({}));
      return made;
    }
    made->kind = Statement::Kind::kSetBlock;
    if (skip_op("|")) made->expressions.push_back(inline_filters());
    made->bodies.push_back(body({"endset"}));
    return made;
  }

  StatementPtr print(int line) {
    StatementPtr made = make(Statement::Kind::kOutput, line);
    while (now().kind != Kind::kBlockEnd) {
      if (!made->expressions.empty()) expect_op(",");
      made->expressions.push_back(expression());
    }
    return made;
  }

  StatementPtr macro(int line) {
    StatementPtr made = make(Statement::Kind::kMacro, line);
    std::string name = expect_name();
    made->targets.push_back({.symbol = symbol(name)});
    made->macro = std::make_unique<MacroBody>();
    made->macro->name = std::move(name);
    signature(*made->macro);
    macro_body(*made->macro, "endmacro");
    return made;
  }

  StatementPtr call_block(int line) {
    StatementPtr made = make(Statement::Kind::kCallBlock, line);
    made->macro = std::make_unique<MacroBody>();
    made->macro->name = "caller";
    if (is_op("(")) signature(*made->macro);
    made->expressions.push_back(expression());
    if (made->expressions[0]->kind != Expression::Kind::kCall) fail_at(line, "'call' wants a call");
    macro_body(*made->macro, "endcall");
    return made;
  }

  void signature(MacroBody& macro) {
    expect_op("(");
    while (!is_op(")")) {
      if (!macro.parameters.empty()) expect_op(",");
      const std::string name = expect_name();
      macro.parameters.push_back(symbol(name));
      macro.parameter_names.push_back(name);
      if (skip_op("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail("a parameter without a default follows one that has a default");
      }
    }
    expect_op(")");
  }

  void macro_body(MacroBody& macro, std::string_view end) {
    macros_.emplace_back();
    macro.body = loopless_body(end);
    macro.uses_caller = macros_.back().caller;
    macro.uses_varargs = macros_.back().varargs;
    macro.uses_kwargs = macros_.back().kwargs;
    macros_.pop_back();
  }

  StatementPtr filter_block(int line) {
    StatementPtr made = make(Statement::Kind::kFilter, line);
    made->expressions.push_back(inline_filters());
    made->bodies.push_back(body({"endfilter"}));
    return made;
  }

  StatementPtr with(int line) {
    StatementPtr made = make(Statement::Kind::kWith, line);
    while (now().kind != Kind::kBlockEnd) {
      if (!made->targets.empty()) expect_op(",");
      made->targets.push_back(target("", false));
      expect_op("=");
      made->expressions.push_back(expression());
    }
    made->bodies.push_back(body({"endwith"}));
    return made;
  }

  StatementPtr generation(int line) {
    has_generation_ = true;
    StatementPtr made = make(Statement::Kind::kGeneration, line);
    made->bodies.push_back(loopless_body("endgeneration"));
    return made;
  }

  /// One or several names, up to the name that ends them.
  Target target(std::string_view end, bool attributes) {
    const Deeper deeper(*this);
    std::vector<Target> parts;
    bool several = false;
    while (true) {
      const bool ends = now().kind == Kind::kBlockEnd || is_op(")") || is_op("=") ||
                        (!end.empty() && is_name(end));
      if (ends && !parts.empty()) break;
      parts.push_back(one_target(attributes));
      if (!skip_op(",")) break;
      several = true;
    }
    if (!several) return std::move(parts[0]);
    return {.kind = Target::Kind::kTuple, .parts = std::move(parts)};
  }

  Target one_target(bool attributes) {
    if (skip_op("(")) {
      Target inner = target("", attributes);
      expect_op(")");
      return inner;
    }
    const std::string name = expect_name();
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) fail(fmt::format("'{}' cannot be set", name));
    }
    if (attributes && skip_op(".")) {
      return {.kind = Target::Kind::kAttribute, .symbol = symbol(name), .attribute = expect_name()};
    }
    return {.symbol = symbol(name)};
  }

  std::string end_;  // the tag that ended the last block
  int loop_bodies_ = 0;
  bool has_generation_ = false;
};

}  // namespace

Program parse(std::string_view source) { return Parser(source).parse(); }

}  // namespace levin::text::jinja
