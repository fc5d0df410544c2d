#pragma once
// backward: loss.backward() of one process, without what LibTorch's engine pays for its threads.
// Every strategy's backward ends here.

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>

#include "levin/base/export.h"

namespace torch::autograd {
struct Node;
}  // namespace torch::autograd

namespace levin {

/// Called with the nodes that a backward will run, in that order, without the accumulation into
/// leaves' gradients.
using BackwardPlanned = std::function<void(std::span<torch::autograd::Node* const>)>;

/// Adds the gradients of the scalar loss to the leaves of its graph and frees what the graph saved:
/// loss.backward(), with the same gradients bit for bit, hooks in the same order, the same errors.
///
/// A graph on the CPU or on XLA is walked in the calling thread. LibTorch's engine serves devices
/// from threads of their own, and for each node it captures and sets all thread-local state twice,
/// takes locks and allocates a task: a fifth to a quarter of a small network's step. Whatever else
/// comes goes to that engine: another device, anomaly detection, a loss that is no scalar.
///
/// Nodes may not call Engine::queue_callback (as torch's own DDP does): its queue belongs to the
/// engine. Throws what loss.backward() throws, "strategy.backward.graph" when a hook took a node's
/// edges away or added some.
LEVIN_API void backward(const at::Tensor& loss);
/// The same; planned is called before the first node runs, where LibTorch's engine is not needed.
LEVIN_API void backward_as_planned(const at::Tensor& loss, const BackwardPlanned& planned);

}  // namespace levin
