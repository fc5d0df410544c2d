#pragma once
// Recording: records operators as they are called, and leaves tensors without contents. Known calls
// are followed (CallTree), others are recorded as a graph, until somebody reads a value: then Memo
// finds the program, and Devices run it.

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "levin/graph/compile/compile_backend.h"
#include "levin/graph/record/recorder.h"
#include "levin/xla/device/contents.h"
#include "levin/xla/device/record/trace.h"
#include "levin/xla/device/remember/memo_impl.h"
#include "levin/xla/device/run/devices_impl.h"

namespace levin::xla {

struct RuntimeImpl;

/// The tensor of an input of a graph.
using Binding = std::function<const at::Tensor&(const graph::Node&)>;

class Recording {
 public:
  using Stack = std::vector<c10::IValue>;
  /// The tensors that it makes keep their owner.
  Recording(RuntimeImpl& owner, LiveContents& live, Devices& devices, Memo& memo);

  // record.cpp, follow.cpp
  /// Records the operator and leaves its results on the stack: tensors of the right types.
  void record(const c10::OperatorHandle& op, Stack& stack);
  /// The recorder, which has all that was followed.
  graph::Recorder& recorder();
  /// The memory is no more.
  void forget(const Contents& contents) { trace_.forget(contents); }

  // run_recorded.cpp
  /// Marks a place where a program may end: all recorded calls run, except within a step.
  void sync();
  /// Runs the recording in any case; the reason says why a step is refused.
  void flush(const std::string& reason);
  /// Drops the recording; its pending results are lost.
  void abandon() noexcept;
  RunArguments arguments_of(const Program& program, const Binding& binding) const;

  // host_reads.cpp: what the host sees.
  /// A CPU tensor of the same geometry. reader: the operator that looks at it.
  at::Tensor download(const at::Tensor& tensor, std::string_view reader);
  /// The results of an operator on the CPU, of the contents of the tensors.
  c10::IValue read(const c10::OperatorHandle& op, const std::vector<at::Tensor>& tensors,
                   std::string_view reader);

  // step_recording.cpp: within a step all that is recorded until its end is one program.
  void begin_step(const std::vector<at::Tensor>& inputs);
  /// Refuses the step under way; the first reason counts.
  void refuse_step(const std::string& reason);
  /// Returns why the step was refused; empty if it was not.
  std::string end_step();
  void forget_step();
  /// A tensor that was given other memory within the step.
  at::Tensor with_other_memory() const;
  graph::Graph run_step(const graph::RecordedCall& call, const std::vector<at::Tensor>& values,
                        std::vector<graph::KeptTensor>& kept);

 private:
  // record.cpp
  void prepare(const c10::OperatorHandle& op, Stack& stack, size_t first);
  void prepare_own(const at::Tensor& argument);
  at::Tensor prepared(const at::Tensor& argument);
  void remember_number(const at::Tensor& number);
  void add_zeros(Contents& contents);
  /// With `filled`, its result is that existing memory.
  void record_call(const c10::OperatorHandle& op, Stack& stack, Contents* filled);

  // follow.cpp
  /// The call that was read, as it was once.
  void follow(CallTree::Call& call, Stack& stack, size_t first, Contents* filled);
  /// The calls that were followed so far are recorded after all.
  void record_followed();
  /// The call that was read, to be known the next time.
  CallTree::Call call_of(at::ArrayRef<c10::IValue> arguments, const c10::OperatorHandle& op) const;
  void remember_call(CallTree::Call&& call, at::ArrayRef<c10::IValue> results,
                     const graph::Node* node, Contents* filled);
  /// Remembers that the recording ended here, with this program.
  void remember_end(std::vector<uint32_t> seen, const KnownProgram& known,
                    const std::vector<Contents*>& results);
  void run_end(const CallTree::End& end);

  // run_recorded.cpp
  const KnownProgram& run(const graph::Graph& graph, const std::vector<Contents*>& results,
                          const Binding& binding);
  void run_recorded();
  void end_recording() noexcept;
  void lose_pending() noexcept;
  double value_of(const RuntimeNumber& number, const Binding& binding) const;
  std::vector<at::Tensor> pending(std::vector<Contents*>& targets) const;

  // host_reads.cpp
  bool look_ahead(const std::vector<at::Tensor>& tensors, std::vector<at::Tensor>& values);

  // step_recording.cpp
  /// Returns whether the recorder is to know the memory by a tensor of its own.
  bool is_met_by_memory(const at::Tensor& argument);
  Binding step_binding(const graph::Graph& graph) const;

  RuntimeImpl& owner_;
  LiveContents& live_;
  Devices& devices_;
  Memo& memo_;

  std::unique_ptr<graph::Recorder> recorder_;
  Trace trace_;
  std::unordered_map<const graph::Node*, const CallTree::Call*> calls_of_nodes_;
  /// Numbers of the host that the recording depends on, as they were when it first did.
  struct HostNumber {
    at::Tensor tensor;  ///< kept, so that the address stays its own
    uint32_t version = 0;
    double value = 0.0;
  };
  std::unordered_map<const c10::TensorImpl*, HostNumber> numbers_;

  bool is_in_step_ = false;
  std::vector<at::Tensor> step_inputs_;  ///< by the graph's placeholders
  /// A tensor that the step did not make, and its memory when it was first read: set_data() gives
  /// it other.
  struct StepMemory {
    at::Tensor tensor, memory;
  };
  std::unordered_map<const c10::TensorImpl*, StepMemory> step_memory_;
  std::string step_trouble_;
};

/// Returns whether the operator writes that argument.
bool writes(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, size_t argument);

/// Returns how the inputs lie on the devices; the binding must outlive the result.
SplitDim split_dims(const Binding& binding);

}  // namespace levin::xla
