#pragma once
// trace: runs ordinary code once and gives the graph of what it did: forward, loss, backward, the
// optimizer's step.
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

// interpret: runs a graph operator by operator through ATen, on any device. Slow next to a compiled
// graph, and the oracle that every pass and every compiler is compared with.
//
//   const Interpretation now = interpret(graph, {x});
//   torch::equal(now.outputs[0], net->forward(x));

namespace levin::graph {

struct Interpretation {
  std::vector<at::Tensor> outputs;  ///< as Graph::outputs()
  std::vector<at::Tensor> updates;  ///< as Graph::updates(); undefined for the random state
};

struct InterpretOptions {
  /// Inputs and state that the graph updates may be written to where their old contents are no
  /// longer needed, and hold their new contents in the end; gradients are set. False: nothing that
  /// was there before is changed.
  bool donate = false;
  /// Is shown what each operator gives, as Node::outputs().
  std::function<void(const Node&, const std::vector<at::Tensor>&)> observe = nullptr;
};

/// Random numbers are drawn from the default generators, in the graph's order. Throws Error
/// "graph.input" for inputs of another number, dtype, device or size than the graph's,
/// "graph.state" for a state tensor that is not bound.
LEVIN_API Interpretation interpret(const Graph& graph, const std::vector<at::Tensor>& inputs,
                                   const InterpretOptions& options = {});

/// Gives all values of the graph the types that they have on these inputs, by interpreting it.
LEVIN_API void propagate_types(Graph& graph, const std::vector<at::Tensor>& inputs);

// GraphModule: a graph and its state as a function, in a program and in a file.
//
//   GraphModule step = levin::trace(train_step, {x, y});
//   step({x2, y2});  // updates the parameters as train_step does
//   step.save("step.safetensors");

struct SaveOptions {
  bool state = true;  ///< the state tensors too; false: they are bound after loading
};

class LEVIN_API GraphModule {
 public:
  explicit GraphModule(Graph graph) : graph_(std::move(graph)) {}

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  /// What the traced function returned, on these inputs; writes what it wrote, gradients too.
  /// Throws Error "graph.input", "graph.state".
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs);

  /// Tensors that live across calls. They are those of the traced code, not copies.
  std::vector<NamedTensor> state() const;
  /// Throws Error "graph.state" when no state tensor has that name.
  void bind(const std::string& name, const at::Tensor& tensor);

  /// A safetensors file with the graph as text in its metadata; it appears whole, and what stood
  /// there stays until then. Throws Error "graph.save" for a constant that has no text, and
  /// "files.write".
  void save(const std::filesystem::path& path, SaveOptions options = {}) const;
  /// Throws Error "graph.load" for a safetensors file without a graph or whose tensors are not the
  /// graph's, "graph.parse", "files.read" and "files.safetensors".
  static GraphModule load(const std::filesystem::path& path);

 private:
  Graph graph_;
};

}  // namespace levin::graph

namespace levin {

struct TraceOptions {
  /// Names of tensors that live across calls; those without become parameter_0, state_1 and so on.
  std::vector<NamedTensor> state = {};
  /// False: reading a value on the host (item(), nonzero()) is an error, because the graph keeps
  /// what came of it in this call. True: graph.host_reads() lists them.
  bool allow_host_reads = false;
  /// False: a tensor that is neither an input nor in `state` is an error.
  bool allow_captured = true;
  bool sources = false;  ///< Node::source() of each node; costs some time
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

/// The function with its inputs in a vector, whatever number it takes them by.
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

/// Calls the function, which takes its tensors one by one or as a vector and returns a tensor,
/// several or none. It runs as it always does, and what it writes is written. What it reads beside
/// its inputs is state; control flow, numbers and what the host writes into new tensors
/// (torch::tensor) stay as they were in this call. A sparse tensor cannot be traced.
///
/// Throws what the function throws, "graph.trace.host_read", "graph.trace.captured",
/// "graph.trace.stale", "graph.trace.overlap", "graph.record.layout" and "graph.record.alias", from
/// within the function, where it happens.
template <class Function>
graph::GraphModule trace(const Function& function, const std::vector<at::Tensor>& inputs,
                         const TraceOptions& options = {}) {
  return detail::trace(detail::traced_function(function), inputs, options);
}

}  // namespace levin
