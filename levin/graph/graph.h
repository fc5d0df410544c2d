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

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/graph/node.h"

namespace levin::graph {

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

}  // namespace levin::graph
