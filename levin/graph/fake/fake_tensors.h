#pragma once
// FakeScope: code of the scope runs on tensors that have sizes, strides, dtype and device, but no
// memory, as under PyTorch's FakeTensorMode. Nothing is computed: an operator with such an argument
// gives results without memory. So a training step can be recorded of a model that no machine holds.
//
//   graph::drop_memory(*net);                 // its parameters and buffers
//   const graph::FakeScope scope;
//   const at::Tensor loss = net->forward(graph::without_memory(batch)).sum();
//   loss.backward();
// Not for users.

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "levin/base/export.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::graph {

/// Returns whether a tensor has sizes and no memory, as those of this header.
LEVIN_API bool has_no_memory(const at::Tensor& tensor);
/// Returns a tensor without memory on the CPU, of the same sizes, strides and dtype. Whoever asks
/// for its values gets an exception.
LEVIN_API at::Tensor without_memory(const at::Tensor& like);
/// Takes the memory of all parameters and buffers, in place. Those on the meta device
/// (init_on_meta) become tensors of the CPU without memory. Tensors that share memory go on sharing.
LEVIN_API void drop_memory(torch::nn::Module& module);

/// The reads of values that are not there, by operator: each number was taken as 1, and
/// each truth value as false.
using AssumedReads = std::map<std::string, int64_t>;

/// Runs the operators of this thread, and of autograd's threads on its behalf, without memory if
/// one of their arguments has none. Other operators run as they are. Scopes of handlers that begin
/// within this one, as a recorder's, see these operators.
///
/// Operators throw Error "graph.fake.operator" if their results' sizes are not known without
/// values: they have no kernel for the meta device and no rule here. They throw "graph.fake.values" if
/// the sizes depend on values, as those of nonzero() do.
class LEVIN_API FakeScope {
 public:
  FakeScope();
  ~FakeScope();
  FakeScope(const FakeScope&) = delete;
  FakeScope& operator=(const FakeScope&) = delete;

  /// Reads of values so far.
  AssumedReads reads() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levin::graph
