#pragma once
// Replay: a recorded graph that is prepared to run many times; compile = "replay" uses it. Memory
// is planned ahead, views are made once, and operators write into planned memory. A call runs
// without autograd, looks nothing up and allocates almost nothing. Matrix products use the fastest
// kernels that give the same bits; the constructor tries them.
//
//   Replay replay(graph);
//   for (const at::Tensor& x : batches) const at::Tensor loss = replay({x}).front();

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

// CompiledReport: how often a compiled function was replayed, and why it was not.
// Trainer::compile_report() and CompiledFunction::report() return it.
//
//   const auto& report = trainer.compile_report();
//   std::cout << report.replayed << " steps replayed, " << report.refusals.size() << " refusals";

namespace levin::graph {

class DeviceGraphs;

/// Statistics of one recording that is replayed.
struct ReplayReport {
  /// Operators that run in each replay; the next four fields count some of them.
  int64_t num_operators = 0;
  int64_t num_allocating = 0;  ///< operators that allocate their results
  int64_t num_captured = 0;  ///< operators that run in graphs captured by the device (CUDA graphs)
  int64_t num_matmuls = 0;   ///< matrix products that run in faster kernels than ATen's
  /// Copies of tensors that an operator overwrites while others still read them.
  int64_t num_copies = 0;
  int64_t num_left_out = 0;   ///< copies of results that are computed where the copies would go
  int64_t num_views = 0;      ///< views, made once
  int64_t num_constants = 0;  ///< operators with a constant result, run once
  int64_t arena_bytes = 0;    ///< memory of all values
  int64_t needed_bytes = 0;   ///< peak of the memory that values need at one time
  int64_t num_exchanged = 0;  ///< tensors that lie in ReplayOptions::exchange_memory
};

struct ReplayOptions {
  /// Memory on CPUs that other ranks can read (ProcessGroup::allocate), for tensors that collectives
  /// send: the ranks then read them where they were computed. Each piece holds one tensor at a time;
  /// tensors that find none lie with the other values. Nothing else may use it while a replay runs.
  std::vector<at::Tensor> exchange_memory = {};
};

/// Counts of the calls of a compiled function so far.
struct CompiledReport {
  int64_t eager = 0;     ///< calls that ran eagerly
  int64_t recorded = 0;  ///< calls that were recorded
  int64_t replayed = 0;  ///< calls that were replayed
  int64_t checked = 0;   ///< calls that ran eagerly instead of a replay and equalled the recording
  std::vector<ReplayReport> replays = {};  ///< statistics of each recording that is replayed
  std::vector<std::string> refusals = {};  ///< reasons why the function runs eagerly
};

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
  explicit Replay(const Graph& graph, const ReplayOptions& options = {});
  /// Prepares a graph to run by these device graphs; nullptr for none. Throws as above.
  Replay(const Graph& graph, std::unique_ptr<DeviceGraphs> device_graphs,
         const ReplayOptions& options = {});
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
  /// Gives the memory of all values but gradients back to the system until the next call, on CPUs.
  void leave_memory();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levin::graph

// StepValue: a number that the host computes in each step, as a tensor. A replayed step then sees
// the number of its own step: the warm-up of a coefficient, a falling temperature.
//
//   levin::StepValue beta{[this] { return std::min(1.0, global_step() / 1000.0); }};  // a member
//   ...
//   return reconstruction + beta() * divergence;                     // in training_step

namespace levin {

/// A number per step, as a scalar tensor that a replay updates. It is a handle: copies share the
/// tensor.
class LEVIN_API StepValue {
 public:
  /// value is called once in each step that runs or is replayed, before the step's operators. It
  /// may read levin's step, epoch or learning rate; these do not become conditions of the
  /// recording. Other data that it reads must outlive it. dtype is a floating-point dtype.
  explicit StepValue(std::function<double()> value, at::ScalarType dtype = at::kFloat);

  /// Returns the number of this step, a tensor of shape [] on the CPU, which operators on every
  /// device accept. It is the same tensor in each step, with new content.
  const at::Tensor& operator()() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace levin
