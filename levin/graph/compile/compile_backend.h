#pragma once
// CompileBackend: how a function of tensors is recorded, and how the recording is run again. Compiled
// decides when; without another engine it is done by Recorder and Replay.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"
#include "levin/graph/record/kept_tensor.h"
#include "levin/graph/replay/replay.h"
#include "levin/module/parameters.h"

namespace levin::graph {

/// A call to be recorded.
struct RecordedCall {
  using Tensors = std::vector<at::Tensor>;
  const Tensors& inputs;  ///< undefined ones too
  const std::vector<std::string_view>& names;
  std::vector<NamedTensor> state = {};  ///< names of tensors that live across calls
  Tensors watched = {};  ///< the state tensors that the host must not write within the function
  std::function<Tensors()> function;
  /// Asked for when the function has returned: what a run must give beside its results.
  std::function<Tensors()> more;
  /// The last recording; a difference is reported with the line of the user's code that runs the
  /// operator.
  const Graph* expected = nullptr;
};

/// The result of a recording. The function has run as it always does, and its results are valid.
struct RecordingResult {
  std::vector<at::Tensor> results;
  std::optional<Graph> graph;       ///< its first outputs are the results, then `more`
  std::string reason_not_recorded;  ///< why there is no graph
  /// Tensors that the function made and that outlive it, in a member say: the graph's last outputs.
  std::vector<KeptTensor> kept = {};
};

/// A recording that can be run again and again.
class LEVIN_API Runner {
 public:
  virtual ~Runner();
  /// Runs the graph and its updates, and returns its outputs. Returns nothing, and changes nothing,
  /// where the host would read another value than in the recording.
  virtual std::optional<std::vector<at::Tensor>> operator()(
      const std::vector<at::Tensor>& inputs) = 0;
  /// Returns the differing value; nullptr if the last call gave outputs.
  virtual const OtherRead* other_read() const { return nullptr; }
  /// Why it does not hold for this call; empty where it does.
  virtual std::string reason_not_replayable(const std::vector<at::Tensor>& inputs) const = 0;
  virtual ReplayReport report() const = 0;
  /// Gives memory back that the next call alone needs.
  virtual void leave_memory() {}
};

class LEVIN_API CompileBackend {
 public:
  virtual ~CompileBackend();
  /// The function's first call, which makes what lives from then on.
  virtual std::vector<at::Tensor> first(const RecordedCall& call) { return call.function(); }
  virtual RecordingResult record(const RecordedCall& call) = 0;
  /// Returns whether its runners compare the values that the host reads. The host could read
  /// another value in a replay.
  virtual bool compares_host_reads() const { return false; }
  /// `pass` changes the graph first, and the options apply, if that is useful. Throws Error if the
  /// graph cannot run.
  virtual std::unique_ptr<Runner> make_runner(Graph& graph, const std::function<void(Graph&)>& pass,
                                              const ReplayOptions& options) = 0;
};

/// By Interposer, Recorder and Replay.
LEVIN_API std::unique_ptr<CompileBackend> make_replay_engine();

}  // namespace levin::graph
