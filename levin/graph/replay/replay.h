#pragma once
// Replay: a graph made ready to run again and again. Memory is planned ahead, views are made once,
// operators write into their place: no autograd, nothing looked up, next to nothing allocated.
// Matrix products are by the fastest kernels that give the same bits, which are tried when it is
// made.
//
//   Replay replay(graph);
//   for (const at::Tensor& x : batches) const at::Tensor loss = replay({x}).front();

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/compile/compile.h"
#include "levin/graph/graph.h"

namespace levin::graph {

class DeviceGraphs;

/// What ended a replay: the host would read something else than when it was recorded.
struct OtherRead {
  size_t number = 0;  ///< of the read, from 0 in the order of the graph
  HostRead read = {};
};

/// Does what interpret does with donate, bit for bit. The graph may be dropped; its state tensors
/// are kept. On a GPU the operators that compute there alone are run by CUDA graphs from the third
/// call on; between these come, one by one, those that read the host's memory (an optimizer its
/// learning rate), the exchanges of ranks, and operators of the user's. Where
/// the host has read a value, the replay compares it. A graph that was read from text is interpreted
/// once on zeros, whose types must be those of the text. Throws Error "graph.replay" for a graph
/// whose types are not known (propagate_types) or not what its operators give, one of which it is
/// not known what the host read, and one with an operator that cannot be run again.
class LEVIN_API Replay {
 public:
  explicit Replay(const Graph& graph);
  /// By these graphs of their device; nullptr for none.
  Replay(const Graph& graph, std::unique_ptr<DeviceGraphs> device_graphs);
  ~Replay();
  Replay(Replay&& other) noexcept;
  Replay& operator=(Replay&& other) noexcept;

  /// Throws Error "graph.input" as interpret does, and "graph.replay.capture" for an operator that
  /// a device's graph cannot hold, as one that waits for the device. State tensors hold their new
  /// contents afterwards and gradients are set; those stay what they are until the next call. The
  /// outputs are the caller's own. Throws "graph.replay.read" where the host would read another
  /// value.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs);
  /// The same, but nothing where the host would read another value: then all is as it was before.
  std::optional<std::vector<at::Tensor>> attempt(const std::vector<at::Tensor>& inputs);
  /// Of the last call; nullptr where the host reads what it did.
  const OtherRead* other_read() const;

  /// The name of a state tensor that has other memory than when this was made, which makes a call
  /// an error ("graph.replay.moved"); empty where there is none.
  std::string moved() const;
  const ReplayReport& report() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levin::graph
