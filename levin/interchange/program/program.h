#pragma once
// Program: what torch.export wrote into models/model.json, checked and without Python's names of types.
// The archive gives its text, the instructions of an ExportedModule are made from it.
//
//   const Program program = read_program(archive.text("models/model.json"));
//   for (const Node& node : program.body.nodes) std::puts(node.target.c_str());

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/interchange/program/expression.h"
#include "levin/interchange/program/pytree.h"

namespace levin::interchange {

/// The place of a value in a call's frame. Each value of a program and of its nested bodies has its own.
using Slot = uint32_t;

struct Body;

/// An argument of a node, or an output of a body.
struct Operand {
  enum class Kind { kConstant, kSlot, kList, kBody };
  /// Constants that LibTorch's operators take as integers, and as which the archive has its own numbers.
  enum class Meaning { kPlain, kDevice };

  Kind kind = Kind::kConstant;
  Meaning meaning = Meaning::kPlain;
  c10::IValue constant;
  Slot slot = 0;
  std::vector<Operand> items;  ///< items of kList: constants, None among them, and slots
  std::shared_ptr<const Body> body;
};

struct NamedOperand {
  std::string name;  ///< the schema's; empty in higher-order operators
  Operand operand;
};

/// One of the values that an operator returns.
struct Result {
  enum class Kind { kUnused, kOne, kList };
  Kind kind = Kind::kUnused;
  std::vector<Slot> slots;  ///< one of kOne; of kList as many as the list has
};

struct Node {
  std::string name;
  std::string target;  ///< "torch.ops.aten.conv2d.default"
  std::vector<NamedOperand> inputs;
  std::vector<Result> results;
  std::string module_path;   ///< path of the module that ran it, "layers.0.attention"; empty: the
                             ///< root
  std::string module_class;  ///< "torch.nn.modules.conv.Conv2d"
  std::string source;  ///< "net.py:7 in forward: h = self.conv(x)"; empty where it is not known
};

/// nullptr where the node has no such input.
const Operand* find_input(const Node& node, std::string_view name);

struct Body {
  std::vector<Slot> inputs;
  std::vector<Node> nodes;
  std::vector<Operand> outputs;
};

/// A tensor as it was when the program was exported.
struct TensorMeta {
  at::ScalarType dtype = at::kFloat;
  std::vector<Expression> sizes;
  std::vector<Expression> strides;
  int64_t storage_offset = 0;
  bool requires_grad = false;
  c10::Device device = at::kCPU;
};

struct Input {
  enum class Kind { kParameter, kBuffer, kConstant, kUser };
  Kind kind = Kind::kUser;
  Slot slot = 0;
  std::string name;                     ///< Python's: "layers.0.weight", or that of the argument
  bool is_persistent = true;            ///< for a buffer: it is in the state dict
  bool requires_grad = false;           ///< for a parameter
  std::optional<c10::IValue> constant;  ///< for kUser: the only value that the program takes
  std::optional<TensorMeta> type;       ///< type of a tensor
};

struct Output {
  enum class Kind { kUser, kBufferMutation, kParameterMutation, kInputMutation };
  Kind kind = Kind::kUser;
  Operand operand;
  std::string name;  ///< the buffer, parameter or input that takes the value
};

struct Range {
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
};

struct Program {
  Body body;
  size_t num_slots = 0;
  std::vector<Input> inputs;    ///< as body.inputs
  std::vector<Output> outputs;  ///< as body.outputs
  PyTree input_tree;  ///< a tuple of the positional arguments and the dict of the named ones
  PyTree output_tree;
  std::vector<std::string> argument_names;  ///< argument names of forward
  std::vector<std::string> modules;         ///< paths of all modules, the root "" among them
  std::map<std::string, std::string> module_classes;  ///< by path, where nodes name them
  std::map<std::string, Range, std::less<>> ranges;   ///< by symbol
  std::vector<std::string> guards;  ///< Python's text of relations between sizes of inputs
};

/// text: that of models/model.json. Throws Error "interchange.archive" for text
/// that is no program of schema 8 and "interchange.unsupported", which names all that levin cannot run.
LEVIN_API Program read_program(std::string_view text);

}  // namespace levin::interchange
