#pragma once
// Recorder: makes a Graph of operators as they run, with their arguments and results. Writes into
// tensors become new values, aliases are resolved. Fed by trace().

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"
#include "levin/graph/record/kept_tensor.h"

namespace levin::graph {

struct RecorderOptions {
  /// False: throws "graph.trace.host_read" where the host reads a value.
  bool allow_host_reads = false;
  /// False: throws "graph.trace.captured" for a tensor that is no input and has no name.
  bool allow_captured = true;
  /// False: throws "graph.trace.stale" for a tensor that autograd knows to have been computed
  /// before.
  bool allow_stale = false;
  /// Keep the function, file and line that ran each operator (the line needs debug information):
  /// some 10 us an operator.
  bool sources = false;
  bool host_read_sources = false;  ///< keep the source of host reads alone
  /// Look at what the host writes into tensors of the CPU and does with random generators. Throws
  /// "graph.record.host_write" and "graph.record.generator" for what no graph can do again.
  bool watch_host = false;
  /// An earlier recording: the first operator that differs gets its source. Must last as long.
  const Graph* expected = nullptr;
};

class LEVIN_API Recorder {
 public:
  explicit Recorder(RecorderOptions options = {});
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Throws Error "graph.trace.overlap" for one that shares memory with another input.
  void add_input(const std::string& name, const at::Tensor& tensor);
  /// Names a tensor that lives across calls.
  void name_state(const std::string& name, const at::Tensor& tensor);
  /// One that lives across calls and that the host must not write within the function, also where
  /// no operator reads it.
  void watch_state(const at::Tensor& tensor);

  /// The tensor's contents are nobody's from here on, as those of the buffer of a gathered parameter:
  /// the memory is planned and no state, until an operator writes it no operator may read it, and
  /// what the recording leaves in it is lost. levin::release_ does this too. Throws Error
  /// "graph.record.alias" for one that is an input or has another part of its memory in use.
  void forget_contents(const at::Tensor& tensor);

  /// Adds a tensor whose views are seen as its parts; it becomes an input if it is not known.
  void meet(const at::Tensor& tensor);

  /// The operator is about to run: its arguments are read. Throws "graph.trace.stale" for a tensor
  /// that was computed before the recording, "graph.record.layout" for one without strides,
  /// "graph.record.alias" where memory is shared in a way that has no value.
  struct Call;
  std::unique_ptr<Call> begin(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack);
  /// It ran, and these are its results, or the end of them. Its node; nullptr where it needs none.
  const Node* end(std::unique_ptr<Call> call, const std::vector<c10::IValue>& stack);

  /// begin(), what runs the operator on the stack, end().
  const Node* call(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
                   c10::function_ref<void()> run);

  /// Returns the tensors that operators made and somebody still holds, beyond these tensors
  /// (results, each once) and gradients.
  std::vector<KeptTensor> kept(const std::vector<at::Tensor>& accounted) const;

  /// Returns the recording so far as a graph that gives these tensors and changes nothing; it has
  /// only the nodes that they need.
  Graph so_far(const std::vector<at::Tensor>& results);

  /// Ends the recording: the function's results become the graph's outputs, and the tensors that it
  /// wrote become its updates.
  Graph finish(const std::vector<at::Tensor>& results);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levin::graph
