#pragma once
// Graph: a computation as values and operators, with fx's vocabulary to read and to change it.
// The recorder makes it from ordinary code; printer, interpreter and passes read it.
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

// HostRead: what the host sees of an operator's results: numbers, and sizes that depend on values.
// A recording holds what it was; a replay goes on only where it is the same.

namespace c10 {
class OperatorHandle;
}  // namespace c10

namespace levin::graph {

struct LEVIN_API HostRead {
  /// By result: the number; of a tensor its sizes, and its contents where LibTorch's own code reads
  /// these by pointer.
  std::vector<c10::IValue> values;

  /// results: what the operator left on the stack.
  static HostRead of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack);

  bool operator==(const HostRead& other) const;
  std::string text() const;
};

}  // namespace levin::graph

// Node and Value: an operator with its arguments, and what it gives. What a Graph is made of.
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

/// What a call leaves behind: new contents of an input or a state tensor, or the gradient of one.
struct Update {
  Value* target = nullptr;  ///< the output of a placeholder, get_attr or random_state
  Value* value = nullptr;
  bool is_gradient = false;
};

/// While it lives, new nodes go where it says; then where they went before.
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

class LEVIN_API Graph {
 public:
  using Nodes = std::pmr::list<Node>;

  Graph();
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  /// The same nodes, bound to the same tensors.
  Graph clone() const;

  /// In the order in which they run; the last is the output.
  const Nodes& nodes() const { return contents_->nodes; }
  Nodes& nodes() { return contents_->nodes; }
  std::vector<Node*> find_nodes(Opcode opcode) const;
  /// By operator, "aten::add.Tensor", or "aten::add" for all its overloads.
  std::vector<Node*> find_nodes(std::string_view target) const;
  /// Operators whose results the host has read.
  std::vector<Node*> host_reads() const;
  Values outputs() const;
  std::vector<Update> updates() const;
  /// Whether the types of its values are what a text says (parse), and not what operators gave.
  bool has_claimed_types() const { return has_claimed_types_; }
  void set_claimed_types(bool claimed) { has_claimed_types_ = claimed; }

  Value& placeholder(std::string name, ValueType type);
  /// The name must be a new one. Throws Error "graph.name".
  Value& get_attr(std::string name, const at::Tensor& tensor);
  /// The random state as it is where nodes are inserted.
  Value& random_state();
  /// Arguments by position, then by name; the schema's defaults for the rest. The types of its
  /// outputs are not known until propagate_types. A list of tensors that it returns has num_results
  /// elements. Throws Error "graph.operator" for one that is not known or other arguments.
  Node& call_function(std::string_view target, std::vector<Argument> arguments,
                      const std::map<std::string, Argument>& named = {}, size_t num_results = 1);
  void set_outputs(const Values& outputs);
  void set_updates(const std::vector<Update>& updates);

  [[nodiscard]] InsertionPoint inserting_before(Node& node);
  [[nodiscard]] InsertionPoint inserting_after(Node& node);
  /// Throws Error "graph.erase" when a value of it is used.
  void erase_node(Node& node);
  /// Erases operators whose values nobody uses, except those that the host reads or that give none;
  /// draws of random numbers stay, because later ones depend on them. Returns how many.
  size_t eliminate_dead_code();
  /// Throws Error "graph.lint", which names the node: a value used before it is made, uses that are
  /// not registered, arguments that the schema does not take, two inputs of one name.
  void lint() const;

 private:
  friend class InsertionPoint;
  friend class Recorder;
  using Place = Nodes::iterator;

  /// Nodes and their parts: memory is taken piece by piece and given back as a whole, so that an
  /// erased node's is not used again.
  struct Contents {
    std::pmr::monotonic_buffer_resource memory;
    Nodes nodes{&memory};
    std::pmr::deque<Value> values{&memory};
  };

  /// The arguments are moved out of where they are.
  Node& insert(Opcode opcode, std::span<Argument> arguments, size_t num_outputs);
  Node& insert_call(const OperatorInfo& info, std::span<Argument> arguments, size_t num_outputs);
  Node& output_node() { return nodes().back(); }
  void thread_random_state(Node& node);

  std::unique_ptr<Contents> contents_ = std::make_unique<Contents>();
  Place place_;                                   ///< new nodes go before it
  std::vector<std::pair<Value*, bool>> targets_;  ///< of the updates; true for a gradient
  bool has_claimed_types_ = false;
};

// A graph as text, for people and for files, and as Graphviz.
//
//   std::puts(levin::graph::to_text(module.graph()).c_str());
//   // %x = placeholder["x"] : f32[8, 784]
//   // %weight = get_attr["weight"] : f32[128, 784]
//   // %t = aten::t(%weight) : f32[784, 128]{1, 784}
//   // %mm = aten::mm(%x, %t) : f32[8, 128]
//   // return %mm

/// One line a node; arguments that have the schema's default value are left out, strides where they
/// are those of a contiguous tensor, the device where it is the CPU.
LEVIN_API std::string to_text(const Graph& graph);
/// What to_text gives, read back; state tensors are to be bound. Throws Error "graph.parse", with
/// the line.
LEVIN_API Graph parse(std::string_view text);
/// For `dot -Tsvg`: operators as boxes, inputs and state as ellipses.
LEVIN_API std::string to_graphviz(const Graph& graph);

}  // namespace levin::graph
