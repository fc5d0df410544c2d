#pragma once
// Replay: a recorded graph that is prepared to run many times; compile = "replay" uses it. Memory
// is planned ahead, views are made once, and operators write into planned memory. A call runs
// without autograd, looks nothing up and allocates almost nothing. Matrix products use the fastest
// kernels that give the same bits; the constructor tries them.
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

/// The host read that ended a replay: the host would read another value than during recording.
struct OtherRead {
  size_t number = 0;   ///< number of the read, from 0 in the order of the graph
  HostRead read = {};  ///< value that the host would read now
};

/// A graph that is prepared to run many times. A call gives the results of interpret with donate =
/// true, bit for bit. If the host read a value during recording, each call compares the new value
/// with it.
///
/// On a GPU, operators that work on the GPU alone run as CUDA graphs from the third call on.
/// Between these, other operators run one by one: collectives, custom operators, and operators that
/// read host memory (an optimizer that reads its learning rate).
class LEVIN_API Replay {
 public:
  /// Prepares a graph, which may be destroyed afterwards; its state tensors are kept. A graph that
  /// was read from text is first interpreted once on zeros, to check the types in the text. Throws
  /// Error "graph.replay" if the types of the graph are not known (call propagate_types) or
  /// differ from what its operators return, if a value that the host reads is not known, and for an
  /// operator that cannot run again.
  explicit Replay(const Graph& graph);
  /// Prepares a graph to run by these device graphs; nullptr for none. Throws as above.
  Replay(const Graph& graph, std::unique_ptr<DeviceGraphs> device_graphs);
  ~Replay();
  /// Takes over a prepared graph.
  Replay(Replay&& other) noexcept;
  Replay& operator=(Replay&& other) noexcept;  ///< takes over a prepared graph

  /// Runs the graph and returns its outputs, which belong to the caller. Afterwards state tensors
  /// have their new contents and gradients are set; the next call overwrites these gradients.
  /// Throws Error "graph.input" as interpret does, "graph.replay.moved" if a state tensor has other
  /// memory than when this was made, "graph.replay.capture" for an operator that a device graph
  /// cannot capture, such as one that waits for the device, and "graph.replay.read" if the host
  /// would read another value than during recording.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs);
  /// Runs the graph like operator(), but returns nothing if the host would read another value. All
  /// tensors are then as they were before the call.
  std::optional<std::vector<at::Tensor>> attempt(const std::vector<at::Tensor>& inputs);
  /// Returns the host read that ended the last call; nullptr if the host read the recorded values.
  const OtherRead* other_read() const;

  /// Returns the name of a state tensor that has other memory than when this was made, or empty
  /// text if there is none. Calls throw Error "graph.replay.moved" then.
  std::string moved() const;
  /// Returns counts of operators, copies and bytes.
  const ReplayReport& report() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levin::graph
