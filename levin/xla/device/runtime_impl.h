#pragma once
// The device's inside.

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "levin/base/error.h"
#include "levin/graph/compile/compile_backend.h"
#include "levin/graph/record/recorder.h"
#include "levin/xla/device/contents.h"
#include "levin/xla/device/runtime.h"
#include "levin/xla/device/shapes/inferred.h"
#include "levin/xla/device/trace.h"
#include "levin/xla/device/world.h"
#include "levin/xla/pjrt/client.h"
#include "levin/xla/pjrt/executable_cache.h"
#include "levin/xla/stablehlo/program_table.h"

namespace levin::xla {

/// The tensor of an input of a graph.
using Binding = std::function<const at::Tensor&(const graph::Node&)>;

/// What a program was made of, to say what is other in the next.
struct CompiledProgram {
  std::vector<std::string> inputs = {};
  std::vector<std::string> lines = {};  ///< one of each node of its graph
  int64_t num_operators = 0;
};

/// What a run of a program is given.
struct RunArguments {
  std::vector<Contents*> inputs = {};
  std::vector<double> numbers = {}, wide_numbers = {};
  bool draws_random_numbers = false;
};

/// A recursive mutex that its owner takes again for next to nothing, as each tensor does that is
/// made or dropped.
class OwnedMutex {
 public:
  void lock() {
    if (owner_.load(std::memory_order_relaxed) == this_thread()) {
      ++depth_;
      return;
    }
    mutex_.lock();
    owner_.store(this_thread(), std::memory_order_relaxed);
    depth_ = 1;
  }
  void unlock() {
    if (--depth_ > 0) return;
    owner_.store(nullptr, std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  static const void* this_thread() {
    static thread_local char mark;
    return &mark;
  }

  std::mutex mutex_;
  std::atomic<const void*> owner_ = nullptr;
  int64_t depth_ = 0;  ///< of the owner
};

struct Runtime::Impl : std::enable_shared_from_this<Runtime::Impl> {
  explicit Impl(const RuntimeOptions& options);
  /// The process's; nullptr where none is open.
  static Impl* current();

  // record.cpp
  /// Records the operator and leaves its results on the stack: tensors of the right types.
  void record(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack);
  graph::Recorder& recording();
  void prepare(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack, size_t first);
  void prepare_own(const at::Tensor& argument);
  at::Tensor prepared(const at::Tensor& argument);
  void remember_number(const at::Tensor& number);
  void add_zeros(Contents& contents);
  /// With `filled`, its result is that memory, which was there.
  void record_call(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
                   Contents* filled);

  // follow.cpp
  /// The call that was read, as it was once.
  void follow(CallTree::Call& call, std::vector<c10::IValue>& stack, size_t first,
              Contents* filled);
  /// What was followed so far is recorded after all.
  void record_followed();
  /// The call that was read, to be known the next time.
  CallTree::Call call_of(at::ArrayRef<c10::IValue> arguments, const c10::OperatorHandle& op) const;
  void remember_call(CallTree::Call&& call, at::ArrayRef<c10::IValue> results,
                     const graph::Node* node, Contents* filled);
  /// That the recording ended here, with this program.
  void remember_end(std::vector<uint32_t> seen, const KnownProgram& known,
                    const std::vector<Contents*>& results);
  void run_end(const CallTree::End& end);

  // run.cpp
  /// Where a program may end: all that was recorded runs, but within a step.
  void sync();
  /// It runs, whatever it is a part of; the reason is why a step is none.
  void flush(const std::string& reason);
  const KnownProgram& run(const graph::Graph& graph, const std::vector<Contents*>& results,
                          const Binding& binding);
  void run_recorded();
  void end_recording() noexcept;

  // execute.cpp
  void execute(const Program& program, const pjrt::Executable& executable, const Binding& binding);
  void execute(const pjrt::Executable& executable, const RunArguments& arguments);
  /// The outputs of the last run, to where they belong; nullptr: nowhere.
  void take_outputs(size_t count, c10::function_ref<Contents*(size_t)> place_of);
  /// What a program that failed was to give is lost; what it was to change is as it was.
  void lose_pending() noexcept;
  [[noreturn]] void fail(const pjrt::Executable& executable, const Error& error);
  std::vector<at::Tensor> pending(std::vector<Contents*>& targets) const;

  // A step: all that is recorded until its end is one program.
  void begin_step(const std::vector<at::Tensor>& inputs);
  /// Why it is none; empty where it is.
  std::string end_step();
  void forget_step();
  /// Whether the recorder is to know the memory by a tensor of its own.
  bool is_met_by_memory(const at::Tensor& argument);
  /// A tensor that was given other memory within the step.
  at::Tensor with_other_memory() const;
  graph::Graph run_step(const graph::RecordedCall& call, const std::vector<at::Tensor>& values,
                        std::vector<graph::KeptTensor>& kept);
  Binding step_binding(const graph::Graph& graph) const;
  Program lowered(const graph::Graph& graph, const SplitDim& split_dim);
  const KnownProgram& program_of(const graph::Graph& graph, const Binding& binding);
  const pjrt::Executable& executable_of(const Program& program, const graph::Graph& graph);
  pjrt::CompileOptions compile_options(int64_t num_replicas) const;
  bool wants_sources() const;
  std::string words_of(const Program& program, const graph::Graph& graph) const;
  void note_compilation(const Program& program, const graph::Graph& graph, double seconds,
                        bool from_disk);
  void gather(const RunArguments& arguments);
  double value_of(const RuntimeNumber& number, const Binding& binding) const;
  void upload(Contents& contents, const at::Tensor& tensor, bool split);

  // reads/host_reads.cpp
  /// A CPU tensor of the same geometry. reader: the operator that looks at it.
  at::Tensor download(const at::Tensor& tensor, std::string_view reader);
  /// What an operator on the CPU gives of what the tensors hold.
  c10::IValue read(const c10::OperatorHandle& op, const std::vector<at::Tensor>& tensors,
                   std::string_view reader);
  bool look_ahead(const std::vector<at::Tensor>& tensors, std::vector<at::Tensor>& values);
  std::vector<at::Tensor> downloaded_outputs(const Program& program);
  /// That is there, without what was recorded since.
  at::Tensor contents_of(const Contents& contents);
  at::Tensor contents_of(const at::Tensor& tensor);

  World world;
  pjrt::Client client;
  pjrt::ExecutableCache cache;
  int64_t num_devices = 1;
  std::vector<int64_t> device_ids;  ///< of all processes, rank by rank
  bool splits_uploads = false;

  /// The autograd engine records from a thread of its own.
  mutable OwnedMutex mutex;
  std::unique_ptr<graph::Recorder> recorder;
  std::function<std::vector<NamedTensor>()> names;
  LiveContents live;
  /// Numbers of the host that the recording depends on, as they were when it first did.
  struct HostNumber {
    at::Tensor tensor;  ///< kept, so that the address stays its own
    uint32_t version = 0;
    double value = 0.0;
  };
  std::unordered_map<const c10::TensorImpl*, HostNumber> numbers;
  std::unordered_map<std::string, pjrt::Executable> executables;  ///< by the program's text
  ProgramTable programs;
  Inferred inferred;
  CallTree call_tree;
  Trace trace{call_tree};
  std::unordered_map<const graph::Node*, const CallTree::Call*> calls_of_nodes;
  std::unordered_set<const graph::Node*> optimizer_nodes;  ///< of the recording
  bool in_optimizer = false;                               ///< an OptimizerScope is there
  bool optimizer_is_fused = true;                          ///< the last one said so
  int (*stop_signal)() = nullptr;
  std::vector<const pjrt::Buffer*> arguments;  ///< of the last run, as the next two
  std::vector<pjrt::Buffer> uploaded;
  std::vector<pjrt::Buffer> outputs;
  bool is_in_step = false;
  std::vector<at::Tensor> step_inputs;  ///< by the graph's placeholders
  /// A tensor that the step did not make, and its memory when it was first read: set_data() gives
  /// it other.
  struct StepMemory {
    at::Tensor tensor, memory;
  };
  std::unordered_map<const c10::TensorImpl*, StepMemory> step_memory;
  std::string step_trouble;
  std::deque<CompiledProgram> last_programs;
  int64_t compiled_at = 0;               ///< of the executions, the last
  int64_t num_in_a_row = 0;              ///< compilations with next to no executions between them
  std::set<std::string> host_operators;  ///< that were warned of
  RuntimeReport report;
};

/// Whether the operator writes that argument.
bool writes(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, size_t argument);

/// How the inputs lie; of a binding that outlives it.
SplitDim split_dims(const Binding& binding);

/// What goes into the program, "input0 f32[32, 784]".
std::vector<std::string> inputs_of(const Program& program);

/// Throws Error "xla.lost".
void check_not_lost(const Contents& contents);

/// Throws Error "xla.index" where an argument on the host names what is not there.
void check_host_indices(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments);

/// Replaces arguments by results, as the operator would, from their types alone.
void infer(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
           const std::shared_ptr<Runtime::Impl>& runtime);

}  // namespace levin::xla
