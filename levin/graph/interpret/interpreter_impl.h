#pragma once
// One run of a graph.

#include <ATen/core/ivalue.h>

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "levin/graph/interpret/liveness_impl.h"
#include "levin/graph/record/trace.h"

namespace levin::graph {

/// Returns a copy with the same strides, so that kernels compute in the same way.
at::Tensor copy_of(const at::Tensor& tensor);

class Run {
 public:
  Run(const Graph& graph, const InterpretOptions& options) : graph_(graph), options_(options) {}

  void bind(const std::vector<at::Tensor>& inputs);
  void run(const Node& node);
  Interpretation results();

 private:
  /// A value that will still be used.
  struct Slot {
    at::Tensor tensor;
    Live live;
  };
  struct Used {
    const Value* value = nullptr;
    at::Tensor tensor;
    size_t memory = 0;
  };

  void bind(const Node& node, const at::Tensor& tensor);
  void separate_overlapping();
  void store(const Value& value, const at::Tensor& tensor, size_t memory);
  size_t new_memory(const Value* input = nullptr);
  void use(const Value& value, std::vector<Used>& used);
  at::Tensor writable(const Value& value, size_t& memory);
  size_t memory_of(const at::Tensor& result, const std::vector<Used>& used);
  torch::jit::Stack arguments_of(const Node& node, std::vector<at::Tensor>& written,
                                 std::vector<size_t>& written_memories);
  void write_back(Interpretation& results);

  const Graph& graph_;
  const InterpretOptions& options_;
  std::unordered_map<const Value*, Slot> slots_;
  Liveness liveness_;
  std::vector<const Value*> inputs_;  ///< by memory; nullptr: memory that this run made
  std::unordered_map<const Value*, at::Tensor> targets_;  ///< inputs, as they were given
  std::unordered_set<const Value*> updated_;
  std::unordered_set<const Value*> shared_;
};

}  // namespace levin::graph
