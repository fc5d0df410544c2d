#pragma once
// The program that a Replay runs.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/graph/replay/matmul_choice_impl.h"
#include "levin/graph/replay/matmul_impl.h"
#include "levin/graph/replay/memory_plan.h"
#include "levin/graph/replay/replay.h"

namespace levin::graph {

/// An operator with its arguments, which are the same tensors each time.
struct Instruction {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;
  /// Tensors that take over the results which it allocates itself; none for results that nobody
  /// reads, and none at all for an operator that writes to its place.
  std::vector<at::Tensor> adopted = {};
  bool gives_list = false;                  ///< its only result is a list of tensors
  std::vector<c10::Storage> released = {};  ///< adopted memory that nobody reads any more
  std::optional<Matmul> matmul = {};        ///< does what it does, faster
  bool is_captured = false;                 ///< by a graph of the device
  bool is_direct = false;                   ///< see direct_calls_impl.h
  /// The host read this during recording: the replay goes on only if it reads the same again.
  std::shared_ptr<const HostRead> read = {};
  size_t read_number = 0;
};

struct BoundInput {
  std::string name;
  ValueType type;
  at::Tensor tensor;        ///< takes the memory of the given input; undefined if nobody reads it
  at::Tensor fixed = {};    ///< the input's copy that a graph of the device reads
  bool is_written = false;  ///< in place
};

/// A tensor that lives across calls, and where it lay when the replay was made.
struct BoundState {
  std::string name;
  at::Tensor tensor;
  const void* data = nullptr;

  BoundState(std::string name, const at::Tensor& tensor);

  /// Asked for each tensor before each replay: what it takes is part of what a step costs.
  bool has_moved() const {
    const c10::TensorImpl& now = *tensor.unsafeGetTensorImpl();
    const bool is_there = now.unsafe_storage().unsafeGetStorageImpl()->data() == memory_ &&
                          now.storage_offset() == offset_;
    return !is_there && tensor.const_data_ptr() != data;
  }

 private:
  const void* memory_;  ///< memory of its storage
  int64_t offset_;
};

/// The copy of a value to its target at the end.
struct FinalUpdate {
  at::Tensor target;
  size_t input = 0;  ///< the number of the target's input, beyond their number for a state tensor
  at::Tensor value;
  bool is_gradient = false;
  bool is_kept = false;  ///< lies in memory that changes, or that must not: copied first
};

/// The tensors and generators that change before the last host read; they are restored if a read
/// differs.
struct Undo {
  std::vector<at::Tensor> tensors;  ///< inputs and state that are written in place
  std::vector<at::Generator> generators;
};

struct ReplayProgram {
  std::vector<Instruction> instructions;
  size_t num_reads = 0;
  Undo undo;
  std::vector<BoundInput> inputs;
  std::vector<BoundState> states;
  std::vector<FinalUpdate> updates;
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> arenas;  ///< one for each device
  MatmulSettings matmul_settings;  ///< under which the matmuls hold
  ReplayReport report;
};

/// Plans the replay of a graph whose types and host reads are known. The device's graphs capture
/// what can be captured. Throws what Replay's constructor throws for other graphs.
ReplayProgram plan_replay(const Graph& graph, std::optional<c10::Device> device,
                          const ReplayOptions& options);

/// Interprets the graph once on zeros, and leaves state and random generators unchanged. Throws
/// Error "graph.replay", which names the operator.
void check_claimed_types(const Graph& graph);

/// Returns whether its tensors are ordinary ones of the CPU, for which it has a kernel of its own.
/// They are the same in each call, and so is what comes of this.
bool is_direct(const Instruction& instruction);

/// Returns whether nobody stands between operators and their kernels in this thread: no handler, no
/// mode, no profiler. Below autograd and autocast.
bool nobody_looks_on();

/// Calls what is_direct() on the stack.
void call_direct(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Returns the out variant, only if the device of the results has a kernel for it: the others
/// compute elsewhere and copy. Nothing for kernels that resize their results.
std::optional<c10::OperatorHandle> out_variant_of(const Node& node);

}  // namespace levin::graph
