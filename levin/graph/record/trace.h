#pragma once
// trace: runs a function once and records the operators that it calls as a graph: forward, loss,
// backward and optimizer step. It is like torch.fx.symbolic_trace and make_fx of PyTorch.
//
//   auto step = levin::trace([&](const at::Tensor& x, const at::Tensor& y) {
//     optimizer->zero_grad();
//     const at::Tensor loss = torch::cross_entropy_loss(net->forward(x), y);
//     loss.backward();
//     optimizer->step();
//     return loss;
//   }, {x, y}, {.state = levin::named_parameters(*net)});
//   std::puts(levin::graph::to_text(step.graph()).c_str());

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"
#include "levin/module/parameters.h"

// interpret: runs a graph operator by operator through ATen, on any device, like
// torch.fx.Interpreter. It is slower than Replay; passes and compilers are compared with it.
//
//   const Interpretation now = interpret(graph, {x});
//   torch::equal(now.outputs[0], net->forward(x));

namespace levin::graph {

/// Results of interpreting a graph.
struct Interpretation {
  std::vector<at::Tensor> outputs;  ///< one tensor for each of Graph::outputs()
  /// One tensor for each of Graph::updates(); undefined for the random state.
  std::vector<at::Tensor> updates;
};

/// Options of interpret.
struct InterpretOptions {
  /// True: the graph's updates take effect, as in the traced function. Updated inputs and state
  /// tensors may be written as soon as their old contents are no longer needed, and hold their new
  /// contents afterwards; gradients are set. False: no existing tensor is changed.
  bool donate = false;
  /// Function that is called with each operator and its results, one tensor for each of
  /// Node::outputs().
  std::function<void(const Node&, const std::vector<at::Tensor>&)> observe = nullptr;
};

/// Runs a graph on inputs. Random numbers are drawn from the default generators, in the order of
/// the graph. Throws Error "graph.input" if number, dtype, device or sizes of the inputs are not
/// those of the graph, and "graph.state" for a state tensor that is not bound.
LEVIN_API Interpretation interpret(const Graph& graph, const std::vector<at::Tensor>& inputs,
                                   const InterpretOptions& options = {});

/// Sets the types of all values of a graph by interpreting it on these inputs, like torch.fx's
/// ShapeProp.
LEVIN_API void propagate_types(Graph& graph, const std::vector<at::Tensor>& inputs);

// GraphModule: a graph and its state tensors as a callable, which can be saved to a file, like
// torch.fx.GraphModule.
//
//   GraphModule step = levin::trace(train_step, {x, y});
//   step({x2, y2});  // updates the parameters as train_step does
//   step.save("step.safetensors");

/// Options of GraphModule::save.
struct SaveOptions {
  bool state = true;  ///< true: save the state tensors too; false: bind() them after loading
};

/// A graph that can be called, with the state tensors that it reads and updates.
class LEVIN_API GraphModule {
 public:
  /// Makes a callable of a graph.
  explicit GraphModule(Graph graph) : graph_(std::move(graph)) {}

  /// The graph, to change it.
  Graph& graph() { return graph_; }
  /// The graph.
  const Graph& graph() const { return graph_; }
  /// Runs the graph and returns what the traced function would return on these inputs. It also
  /// writes the tensors and gradients that the function would write. Throws Error "graph.input" and
  /// "graph.state", like interpret.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs);

  /// Returns the tensors that live across calls: the traced code's own tensors, not copies.
  std::vector<NamedTensor> state() const;
  /// Replaces a state tensor. Throws Error "graph.state" if no state tensor has the name.
  void bind(const std::string& name, const at::Tensor& tensor);

  /// Writes a safetensors file that has the graph as text in its metadata. The file replaces an
  /// older one only when it is complete. Throws Error "graph.save" for a constant that cannot be
  /// written as text and for a dtype that safetensors cannot store, and "files.write".
  void save(const std::filesystem::path& path, SaveOptions options = {}) const;
  /// Reads a file that save() wrote. Throws Error "graph.parse", "files.read" and
  /// "files.safetensors", and "graph.load" for a safetensors file that has no graph, or has other
  /// tensors than its graph.
  static GraphModule load(const std::filesystem::path& path);

 private:
  Graph graph_;
};

}  // namespace levin::graph

namespace levin {

/// Options of trace.
struct TraceOptions {
  /// Names for tensors that live across calls. Others are named parameter_0, state_1 and so on.
  std::vector<NamedTensor> state = {};
  /// False: an error is thrown when the host reads a value (item(), nonzero()), because the graph
  /// keeps the value of this call. True: graph.host_reads() lists these reads.
  bool allow_host_reads = false;
  /// False: an error is thrown for a tensor that is neither an input nor in `state`.
  bool allow_captured = true;
  bool sources = false;  ///< true: sets Node::source() of each node, which takes some time
};

namespace detail {

using TracedFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

LEVIN_API graph::GraphModule trace(const TracedFunction& function,
                                   const std::vector<at::Tensor>& inputs,
                                   const TraceOptions& options);

template <size_t>
using TensorArgument = const at::Tensor&;

template <class Function, size_t... Is>
constexpr bool takes(std::index_sequence<Is...>) {
  return std::is_invocable_v<Function, TensorArgument<Is>...>;
}

template <class Result>
std::vector<at::Tensor> as_vector(Result&& result) {
  if constexpr (std::is_convertible_v<Result, at::Tensor>) {
    return {std::forward<Result>(result)};
  } else if constexpr (std::is_convertible_v<Result, std::vector<at::Tensor>>) {
    return std::forward<Result>(result);
  } else {
    return std::apply([](const auto&... tensors) { return std::vector<at::Tensor>{tensors...}; },
                      result);
  }
}

template <class Function, class... Tensors>
std::vector<at::Tensor> call_traced(Function& function, const Tensors&... inputs) {
  if constexpr (std::is_void_v<decltype(function(inputs...))>) {
    function(inputs...);
    return {};
  } else {
    return as_vector(function(inputs...));
  }
}

/// Wraps a function of any number of tensors as a function of a vector of tensors.
template <class Function, size_t Count = 0>
TracedFunction traced_function(const Function& function) {
  static_assert(Count <= 8, "a traced function takes up to 8 tensors, or a vector of them");
  if constexpr (std::is_invocable_v<Function, const std::vector<at::Tensor>&>) {
    return [&function](const std::vector<at::Tensor>& inputs) {
      return call_traced(function, inputs);
    };
  } else if constexpr (takes<Function>(std::make_index_sequence<Count>())) {
    return [&function](const std::vector<at::Tensor>& inputs) {
      return [&]<size_t... Is>(std::index_sequence<Is...>) {
        return call_traced(function, inputs.at(Is)...);
      }(std::make_index_sequence<Count>());
    };
  } else {
    return traced_function<Function, Count + 1>(function);
  }
}

}  // namespace detail

/// Calls a function and returns the graph of its operators. The function takes up to 8 tensors, or
/// a vector of tensors, and returns one tensor, several or none. The call has its usual effects:
/// tensors that it writes are written. Tensors that it reads besides its inputs become state of the
/// graph. The graph has only the branches and loop iterations of this call. Numbers, and values
/// that the host writes into new tensors (torch::tensor), stay as they were in this call. Sparse
/// tensors cannot be traced.
///
/// Throws what the function throws. Throws Error "graph.trace.host_read", "graph.trace.captured",
/// "graph.trace.stale", "graph.trace.overlap", "graph.record.layout" and "graph.record.alias" from
/// within the function, at the operator that causes the error.
template <class Function>
graph::GraphModule trace(const Function& function, const std::vector<at::Tensor>& inputs,
                         const TraceOptions& options = {}) {
  return detail::trace(detail::traced_function(function), inputs, options);
}

}  // namespace levin
