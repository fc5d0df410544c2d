#pragma once
// Nodes: what a template says, once it is parsed.
// Not for users.
//
//   const Expression& condition = *statement.expressions[0];

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/text/template/callable.h"
#include "levin/text/template/values/value.h"

namespace levin::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// The arguments of a call, a filter or a test.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr list;  // *list
  ExpressionPtr dict;  // **dict
};

struct Expression {
  enum class Kind {
    kConstant,   // value
    kName,       // symbol
    kList,       // parts
    kTuple,      // parts
    kDict,       // parts: key, value, key, value
    kAttribute,  // parts[0].name
    kItem,       // parts[0][parts[1]]
    kSlice,      // parts[0][parts[1]:parts[2]:parts[3]], any of these three null
    kCall,       // parts[0](arguments)
    kFilter,     // parts[0] | name(arguments); parts[0] is null for what a block holds
    kTest,       // parts[0] is name(arguments)
    kUnary,      // op parts[0]
    kBinary,     // parts[0] op parts[1]
    kConcat,     // parts[0] ~ parts[1] ~ ...
    kCompare,    // parts[0] ops[0] parts[1] ops[1] ...
    kNot,
    kAnd,
    kOr,
    kCondition  // parts[0] if parts[1] else parts[2], which may be null
  };
  Kind kind = Kind::kConstant;
  int line = 0;
  int depth = 1;    // depth of the tree
  int symbol = -1;  // number of a variable's name
  std::string name;
  std::vector<std::string> ops;
  Value value;
  std::vector<ExpressionPtr> parts;
  CallArguments arguments;
  Function::Body function = nullptr;  // a filter's or test's body; null if none has the name
};

struct Target;
struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

/// The target of an assignment.
struct Target {
  enum class Kind { kName, kTuple, kAttribute };
  Kind kind = Kind::kName;
  int symbol = -1;        // a variable, or the one whose attribute is set
  std::string attribute;  // attribute of a namespace
  std::vector<Target> parts;
};

/// A macro's parameters and body, or those of a call block.
struct MacroBody {
  std::string name;
  std::vector<int> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExpressionPtr> defaults;  // defaults of the last parameters
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
  Block body;
};

struct Statement {
  enum class Kind {
    kData,      // text
    kOutput,    // expressions
    kSet,       // target = expressions[0]
    kSetBlock,  // target = what the body puts out, through expressions[0], a filter, if there is one
    kIf,        // expressions[i] ? bodies[i] ..., the last body without condition
    kFor,       // for target in expressions[0] if expressions[1]; bodies[1] where there was no item
    kWith,      // targets[i] = expressions[i]
    kFilter,    // output of the body, passed through expressions[0]
    kMacro,     // macro
    kCallBlock,   // expressions[0] is called with the macro as its caller
    kGeneration,  // bodies[0]: what the assistant said
    kBreak,
    kContinue
  };
  Kind kind = Kind::kData;
  int line = 0;
  bool recursive = false;
  bool uses_loop = false;
  std::string text;
  std::vector<Target> targets;
  std::vector<ExpressionPtr> expressions;
  std::vector<Block> bodies;
  std::unique_ptr<MacroBody> macro;
};

/// A whole template.
struct Program {
  Block body;
  std::vector<std::string> symbols;  // names of variables, by number
  bool has_generation = false;
  std::string literals;  // its texts, with a byte of 0 between
};

}  // namespace levin::text::jinja
