#pragma once
// LoopRecording: the graph of a step of a loop of one's own, for `levin plan` and `levin graph`.
// Where no function is given to Accelerator::compile: what runs from the end of an optimizer's
// first step to the end of its second, or of an accumulation window its last batch.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/data/batch.h"
#include "levin/graph/record/recording_session.h"
#include "levin/module/parameters.h"
#include "levin/optim/optimizer.h"

namespace levin::detail {

/// Does nothing in a run that is to train. Else the step's graph is written and the program ends
/// (keep_graph).
class LoopRecording {
 public:
  struct Tensors {
    std::vector<NamedTensor> state, parameters;
  };
  /// tensors: returns the tensors that live across steps now. describe: writes what a forecast
  /// needs beside the graph.
  LoopRecording(std::function<Tensors()> tensors, std::function<void()> describe);

  /// Takes a batch that a prepared loader gave.
  void take_input(const Batch& batch);
  /// The step is of this batch alone, and of those before it that its gradients hold.
  void begin_batch();
  /// Throws Error "graph.stretch".
  void end_step(const optim::Optimizer& optimizer);

 private:
  void start();
  void add_inputs(const Batch& batch);

  bool is_on_;
  std::function<Tensors()> tensors_;
  std::function<void()> describe_;
  Batch batch_;  ///< the newest
  std::unique_ptr<graph::RecordingSession> session_;
  int64_t num_batches_ = 0;                  ///< in the stretch
  const optim::Optimizer* first_ = nullptr;  ///< first optimizer that made a step
  const optim::Optimizer* last_ = nullptr;   ///< and until a batch of a window began
  bool is_of_batch_ = false;
};

}  // namespace levin::detail
