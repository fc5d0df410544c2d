#pragma once
// Node and Value: an operator with its arguments, and what it gives. What a Graph is made of.
//
//   for (Node* node : graph.find_nodes("aten::relu")) {
//     Value& x = *node->input(0);
//     if (x.type().dtype == at::kFloat) node->output().replace_all_uses_with(x);
//   }

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <list>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "levin/base/export.h"

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace levin::graph {

class Graph;
class Node;
struct HostRead;
struct OperatorInfo;

enum class ValueKind {
  kTensor,
  kUndefined,  ///< a tensor that the operator left out, as a gradient nobody wants
  kHost,       ///< a number that the host has read
  kRandom      ///< the state of the random generators
};

/// Of a tensor: what an operator may choose its kernel by. Undefined dtype: not known.
struct LEVIN_API ValueType {
  ValueKind kind = ValueKind::kTensor;
  at::ScalarType dtype = at::ScalarType::Undefined;
  c10::Device device = at::kCPU;
  at::DimVector sizes = {};
  at::DimVector strides = {};

  static ValueType of(const at::Tensor& tensor);
  void assign(const at::Tensor& tensor);
  bool operator==(const ValueType&) const = default;
};

/// Never changes: what an operator writes into is, from then on, another value.
class LEVIN_API Value {
 public:
  Node& node() const { return *node_; }
  const ValueType& type() const { return type_; }
  void set_type(ValueType type) { type_ = std::move(type); }
  using Users = c10::SmallVector<Node*, 2>;
  /// In no particular order, once for each use.
  const Users& users() const { return users_; }
  void replace_all_uses_with(Value& other);

 private:
  friend class Graph;
  friend class Node;
  friend class Recorder;
  Node* node_ = nullptr;
  ValueType type_;
  Users users_;
};

using Constant = std::shared_ptr<const c10::IValue>;
/// A list of tensors; nullptr stands for none.
using Values = std::vector<Value*>;

/// A value, a list of values, or a constant of any type that operators take.
struct LEVIN_API Argument : std::variant<Constant, Value*, Values> {
  using variant::variant;
  Argument(Value& value) : variant(&value) {}
  Argument(std::nullptr_t);  ///< none
  Argument(bool constant);
  Argument(int constant) : Argument(static_cast<int64_t>(constant)) {}
  Argument(int64_t constant);
  Argument(double constant);
  Argument(const char* constant);
  Argument(at::ScalarType constant);
  Argument(std::vector<int64_t> constant);
  explicit Argument(const c10::IValue& constant);
};

enum class Opcode {
  kPlaceholder,  ///< an input, in the order of the function's
  kGetAttr,      ///< a tensor that lives across calls: a parameter, a buffer, an optimizer's state
  kRandomState,  ///< of the default generators, before the first draw
  kCallFunction,
  kOutput
};

/// Made by its Graph, in whose memory its arguments and values lie.
class LEVIN_API Node {
 public:
  using Arguments = std::pmr::vector<Argument>;
  using Outputs = std::pmr::vector<Value*>;

  explicit Node(std::pmr::memory_resource* memory) : arguments_(memory), outputs_(memory) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Opcode opcode() const { return opcode_; }
  /// "aten::add.Tensor"; "placeholder", "get_attr", "random_state", "output".
  std::string_view target() const;
  /// Of a kCallFunction.
  const c10::OperatorHandle& op() const;
  const OperatorInfo& info() const { return *info_; }  ///< for levin's own sources
  /// Of a kPlaceholder and a kGetAttr; undefined where no tensor has been bound.
  const std::string& name() const { return name_; }
  const at::Tensor& tensor() const { return tensor_; }
  void bind(at::Tensor tensor) { tensor_ = std::move(tensor); }

  /// As the operator's schema has them; one that draws random numbers has the state as one more.
  const Arguments& arguments() const { return arguments_; }
  /// The values among them, lists taken apart.
  Values inputs() const;
  Value* input(size_t index) const;
  void set_argument(size_t index, Argument argument);
  void replace_input_with(Value& old_input, Value& new_input);

  /// What the operator returns, lists taken apart and without what it only hands back; then the new
  /// values of the arguments that it writes; then the random state.
  const Outputs& outputs() const { return outputs_; }
  Value& output(size_t index = 0) const { return *outputs_.at(index); }
  bool is_random() const;
  /// Whether the host sees its result: its value, or a size that depends on values.
  bool is_host_read() const;
  /// What the host saw when it was recorded; nullptr where that is not known.
  const std::shared_ptr<const HostRead>& host_read() const { return host_read_; }
  /// The function, file and line that ran it, where the recorder was asked for it.
  const std::string& source() const { return source_; }

 private:
  friend class Graph;
  friend class Value;
  friend class Recorder;
  void add_uses();
  void remove_uses();

  Opcode opcode_ = Opcode::kCallFunction;
  const OperatorInfo* info_ = nullptr;
  std::string name_;
  at::Tensor tensor_;
  Arguments arguments_;
  Outputs outputs_;
  std::string source_;
  std::shared_ptr<const HostRead> host_read_;
  std::list<Node>::iterator place_;
};

}  // namespace levin::graph
