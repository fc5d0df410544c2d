#pragma once
// Graph: a computation as nodes (operators) and values, read and changed with the functions of
// torch.fx. levin::trace records it from ordinary code; the printer, the interpreter, Replay and
// the passes work on it.
//
//   for (Node* node : graph.find_nodes("aten::relu")) {
//     const InsertionPoint at = graph.inserting_before(*node);
//     Node& gelu = graph.call_function("aten::gelu", {*node->input(0)});
//     node->output().replace_all_uses_with(gelu.output());
//     graph.erase_node(*node);
//   }
//   graph.lint();

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "levin/base/export.h"

// HostRead: the results of an operator that the host has read: numbers (item()), and sizes that
// depend on values (nonzero()). A recording keeps them, because control flow may depend on them; a
// replay goes on only if the host would read the same again.
//
//   for (const Node* node : graph.host_reads()) std::puts(node->host_read()->text().c_str());

namespace c10 {
class OperatorHandle;
}  // namespace c10

namespace levin::graph {

/// The values that the host read of one operator's results.
struct LEVIN_API HostRead {
  /// One value per result: the number, or the sizes of a tensor. If LibTorch's own code reads a
  /// tensor's contents by pointer (_pack_padded_sequence), the contents instead of the sizes.
  std::vector<c10::IValue> values;

  /// Makes the read of an operator whose results are on top of the stack.
  static HostRead of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack);

  /// Returns whether the host reads the same.
  bool operator==(const HostRead& other) const;
  /// Returns the values as text, for messages.
  std::string text() const;
};

}  // namespace levin::graph

// Node and Value: a call of an operator with its arguments, and its results. A Graph consists of
// them.
//
//   for (Node* node : graph.find_nodes("aten::relu")) {
//     Value& x = *node->input(0);
//     if (x.type().dtype == at::kFloat) node->output().replace_all_uses_with(x);
//   }

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace levin::graph {

class Graph;
class Node;
struct HostRead;
struct OperatorInfo;

/// Kind of a value.
enum class ValueKind {
  kTensor,     ///< a tensor
  kUndefined,  ///< an undefined tensor, such as a gradient that nothing needs
  kHost,       ///< a number that the host has read
  kRandom      ///< the state of the random generators
};

/// Type of a value. For a tensor it has everything by which an operator may choose its kernel.
struct LEVIN_API ValueType {
  ValueKind kind = ValueKind::kTensor;               ///< kind of the value
  at::ScalarType dtype = at::ScalarType::Undefined;  ///< Undefined: the type is not known yet
  c10::Device device = at::kCPU;                     ///< device of the tensor
  at::DimVector sizes = {};                          ///< sizes of the tensor
  at::DimVector strides = {};                        ///< strides, in elements

  /// Returns the type of a tensor.
  static ValueType of(const at::Tensor& tensor);
  /// Sets this to the type of a tensor; kUndefined for an undefined one.
  void assign(const at::Tensor& tensor);
  /// Compares all fields.
  bool operator==(const ValueType&) const = default;
};

/// A result of a node. A value never changes: when an operator writes into a tensor in place, the
/// new contents are another value.
class LEVIN_API Value {
 public:
  /// Node that makes this value.
  Node& node() const { return *node_; }
  /// Type of the value.
  const ValueType& type() const { return type_; }
  /// Sets the type.
  void set_type(ValueType type) { type_ = std::move(type); }
  /// The nodes that use a value.
  using Users = c10::SmallVector<Node*, 2>;
  /// Nodes that use this value, in no particular order. A node occurs once for each use.
  const Users& users() const { return users_; }
  /// Makes all users of this value use the other one, as fx's Node.replace_all_uses_with.
  void replace_all_uses_with(Value& other);

 private:
  friend class Graph;
  friend class Node;
  friend class Recorder;
  Node* node_ = nullptr;
  ValueType type_;
  Users users_;
};

/// A constant argument.
using Constant = std::shared_ptr<const c10::IValue>;
/// A list of tensors; nullptr stands for None.
using Values = std::vector<Value*>;

/// A value, a list of values, or a constant of any type that operators take.
struct LEVIN_API Argument : std::variant<Constant, Value*, Values> {
  using variant::variant;
  Argument(Value& value) : variant(&value) {}                           ///< a value of the graph
  Argument(std::nullptr_t);                                             ///< None
  Argument(bool constant);                                              ///< a boolean
  Argument(int constant) : Argument(static_cast<int64_t>(constant)) {}  ///< an integer
  Argument(int64_t constant);                                           ///< an integer
  Argument(double constant);                                            ///< a number
  Argument(const char* constant);                                       ///< a text
  Argument(at::ScalarType constant);                                    ///< a dtype
  Argument(std::vector<int64_t> constant);                              ///< a list of integers
  explicit Argument(const c10::IValue& constant);                       ///< any constant
};

/// Kind of a node, with the names of torch.fx.
enum class Opcode {
  kPlaceholder,   ///< an input; placeholders are in the order of the function's inputs
  kGetAttr,       ///< a tensor that lives across calls: parameter, buffer, optimizer state
  kRandomState,   ///< state of the default random generators before the first draw
  kCallFunction,  ///< a call of an operator
  kOutput         ///< the last node, whose arguments are the outputs and updates
};

/// A node of a graph: an input, a state tensor, a call of an operator or the output. Only a Graph
/// makes nodes; their arguments and values are in its memory.
class LEVIN_API Node {
 public:
  /// Arguments of a node.
  using Arguments = std::pmr::vector<Argument>;
  /// Results of a node.
  using Outputs = std::pmr::vector<Value*>;

  /// Makes an empty node; Graph calls it.
  explicit Node(std::pmr::memory_resource* memory) : arguments_(memory), outputs_(memory) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Kind of the node.
  Opcode opcode() const { return opcode_; }
  /// Name of the operator, such as "aten::add.Tensor", or "placeholder", "get_attr", "random_state"
  /// or "output".
  std::string_view target() const;
  /// Operator of a kCallFunction node. Other nodes have none.
  const c10::OperatorHandle& op() const;
  /// Name of a kPlaceholder or kGetAttr node.
  const std::string& name() const { return name_; }
  /// State tensor of a kGetAttr node; undefined if none has been bound.
  const at::Tensor& tensor() const { return tensor_; }
  /// Binds the state tensor of a kGetAttr node.
  void bind(at::Tensor tensor) { tensor_ = std::move(tensor); }

  /// Arguments in the order of the operator's schema. A node that draws random numbers has the
  /// random state as one more argument.
  const Arguments& arguments() const { return arguments_; }
  /// Returns the values among the arguments, with lists flattened.
  Values inputs() const;
  /// Returns inputs()[index].
  Value* input(size_t index) const;
  /// Replaces one argument.
  void set_argument(size_t index, Argument argument);
  /// Replaces an input wherever this node uses it, as fx's Node.replace_input_with.
  void replace_input_with(Value& old_input, Value& new_input);

  /// Results: first the tensors that the operator returns, with lists flattened and without
  /// arguments that it returns again; then the new values of the arguments that it writes; then the
  /// random state.
  const Outputs& outputs() const { return outputs_; }
  /// Returns one result.
  Value& output(size_t index = 0) const { return *outputs_.at(index); }
  /// Returns whether the operator draws random numbers.
  bool is_random() const;
  /// Returns whether the host sees its result: the value, or a size that depends on values.
  bool is_host_read() const;
  /// Values that the host read during recording; nullptr if they are not known.
  const std::shared_ptr<const HostRead>& host_read() const { return host_read_; }
  /// Function, file and line that called the operator, if TraceOptions::sources was set.
  const std::string& source() const { return source_; }

 private:
  friend class Graph;
  friend class Value;
  friend class Recorder;
  friend const OperatorInfo& info_of(const Node& node);
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

/// A side effect of a call: new contents of an input or a state tensor, or a gradient (.grad) of
/// one.
struct Update {
  Value* target = nullptr;   ///< output of a placeholder, get_attr or random_state node
  Value* value = nullptr;    ///< the new contents or the gradient
  bool is_gradient = false;  ///< true: value becomes the gradient of target
};

/// The place where a graph inserts new nodes, for as long as this object lives. Afterwards the
/// previous place is restored.
class LEVIN_API InsertionPoint {
 public:
  ~InsertionPoint();
  InsertionPoint(const InsertionPoint&) = delete;
  InsertionPoint& operator=(const InsertionPoint&) = delete;

 private:
  friend class Graph;
  InsertionPoint(Graph& graph, std::list<Node>::iterator place);
  Graph& graph_;
  std::list<Node>::iterator before_;
};

/// A computation: nodes in the order in which they run. It follows torch.fx.Graph, but its nodes
/// are calls of ATen operators.
class LEVIN_API Graph {
 public:
  /// The list of nodes.
  using Nodes = std::pmr::list<Node>;

  /// Makes a graph that has only its output node.
  Graph();
  ~Graph();
  /// Takes over the nodes.
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;  ///< takes over the nodes
  /// Returns a copy of the graph, bound to the same state tensors.
  Graph clone() const;

  /// Nodes in the order in which they run; the last one is the output.
  const Nodes& nodes() const { return contents_->nodes; }
  /// Nodes, to change them.
  Nodes& nodes() { return contents_->nodes; }
  /// Returns the nodes of one kind.
  std::vector<Node*> find_nodes(Opcode opcode) const;
  /// Returns the calls of an operator: "aten::add.Tensor", or "aten::add" for all its overloads.
  std::vector<Node*> find_nodes(std::string_view target) const;
  /// Returns the operators whose results the host has read.
  std::vector<Node*> host_reads() const;
  /// Returns the values that the graph returns.
  Values outputs() const;
  /// Returns the side effects of a call.
  std::vector<Update> updates() const;
  /// Returns whether the types of the values come from a text (parse) and not from running
  /// operators.
  bool has_claimed_types() const { return has_claimed_types_; }
  /// Sets has_claimed_types().
  void set_claimed_types(bool claimed) { has_claimed_types_ = claimed; }

  /// Inserts an input.
  Value& placeholder(std::string name, ValueType type);
  /// Inserts a state tensor. Throws Error "graph.name" if another state tensor has the name.
  Value& get_attr(std::string name, const at::Tensor& tensor);
  /// Returns the random state at the place where nodes are inserted.
  Value& random_state();
  /// Inserts a call of an operator. Arguments are given by position, then by name; the others have
  /// the schema's defaults. The types of its outputs are not known until propagate_types. If the
  /// operator returns a list of tensors, the list has num_results elements. Throws Error
  /// "graph.operator" for an unknown operator and for arguments that it does not take.
  Node& call_function(std::string_view target, std::vector<Argument> arguments,
                      const std::map<std::string, Argument>& named = {}, size_t num_results = 1);
  /// Sets the values that the graph returns.
  void set_outputs(const Values& outputs);
  /// Sets the side effects of a call.
  void set_updates(const std::vector<Update>& updates);

  /// Makes new nodes go before this node while the returned object lives.
  [[nodiscard]] InsertionPoint inserting_before(Node& node);
  /// Makes new nodes go after this node while the returned object lives.
  [[nodiscard]] InsertionPoint inserting_after(Node& node);
  /// Erases a node. Throws Error "graph.erase" if one of its values is used or updated, and for the
  /// output node.
  void erase_node(Node& node);
  /// Erases operators whose values nothing uses and returns how many. Operators without results,
  /// collectives and operators that the host reads stay. Draws of random numbers stay, because later draws depend
  /// on them.
  size_t eliminate_dead_code();
  /// Checks the graph. Throws Error "graph.lint", which names the node, for a value that is used
  /// before it is made, uses that are not registered, arguments that the schema does not take, and
  /// two inputs of one name.
  void lint() const;

 private:
  friend class InsertionPoint;
  friend class Recorder;
  using Place = Nodes::iterator;

  /// Nodes and their parts. Their memory is freed with the graph only: an erased node's memory is
  /// not used again.
  struct Contents {
    std::pmr::monotonic_buffer_resource memory;
    Nodes nodes{&memory};
    std::pmr::deque<Value> values{&memory};
  };

  /// Inserts a node and moves the arguments into it.
  Node& insert(Opcode opcode, std::span<Argument> arguments, size_t num_outputs);
  Node& insert_call(const OperatorInfo& info, std::span<Argument> arguments, size_t num_outputs);
  Node& output_node() { return nodes().back(); }
  void thread_random_state(Node& node);

  std::unique_ptr<Contents> contents_ = std::make_unique<Contents>();
  Place place_;                                   ///< new nodes go before it
  std::vector<std::pair<Value*, bool>> targets_;  ///< targets of the updates; true for a gradient
  bool has_claimed_types_ = false;
};

// A graph as text, for reading and for files, and as a Graphviz drawing.
//
//   std::puts(levin::graph::to_text(module.graph()).c_str());
//   // %x = placeholder["x"] : f32[8, 784]
//   // %weight = get_attr["weight"] : f32[128, 784]
//   // %t = aten::t(%weight) : f32[784, 128]{1, 784}
//   // %mm = aten::mm(%x, %t) : f32[8, 128]
//   // return %mm

/// Returns the graph as text, one line per node. Arguments with the schema's default value, strides
/// of contiguous tensors and the device CPU are left out.
LEVIN_API std::string to_text(const Graph& graph);
/// Reads a graph from the text that to_text returns. Its state tensors must be bound before it
/// runs. Throws Error "graph.parse", with the line.
LEVIN_API Graph parse(std::string_view text);
/// Returns the graph in the language of Graphviz, for `dot -Tsvg`: operators are boxes, inputs and
/// state are ellipses.
LEVIN_API std::string to_graphviz(const Graph& graph);

}  // namespace levin::graph
