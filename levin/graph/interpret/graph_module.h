#pragma once
// GraphModule: a graph and its state as a function, in a program and in a file.
//
//   GraphModule step = levin::trace(train_step, {x, y});
//   step({x2, y2});  // updates the parameters as train_step does
//   step.save("step.safetensors");

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"
#include "levin/module/parameters.h"

namespace levin::graph {

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
