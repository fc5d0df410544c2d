#pragma once
// RecordingSession: records what runs in this thread between two moments that no one function spans, as a
// step of a loop that somebody else has written.
//
//   auto session = std::make_unique<graph::RecordingSession>(accelerator.named_state());
//   ...                                                      // in another function, later:
//   const graph::Graph step = session->finish();

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"
#include "levin/module/parameters.h"

namespace levin::graph {

/// Records from its construction on; the host may read values. It ends in the thread that it began
/// in.
class LEVIN_API RecordingSession {
 public:
  /// state: names of tensors that live across steps.
  explicit RecordingSession(const std::vector<NamedTensor>& state);
  ~RecordingSession();
  RecordingSession(const RecordingSession&) = delete;
  RecordingSession& operator=(const RecordingSession&) = delete;

  /// Adds a tensor that is new in each step. A tensor that shares memory with a known one is left
  /// as it is known.
  void add_input(const std::string& name, const at::Tensor& tensor);
  /// Ends it. Throws Error "graph.stretch" where something could not be recorded.
  Graph finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levin::graph
