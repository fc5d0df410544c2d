#pragma once
// Compiled: a function of tensors that first runs eagerly, is recorded twice, and is replayed from
// then on. A replay runs the recording and does not call the function. From time to time the
// function is called instead of a replay and compared with the recording.
//
//   Compiled step("step");
//   const auto results = step({.inputs = {x, y}, .names = {"x", "y"}},
//                             [&] { return std::vector{train_step(x, y)}; });

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/compile/compile_backend.h"
#include "levin/graph/compile/exact_number.h"
#include "levin/graph/compile/host_part.h"
#include "levin/graph/graph.h"
#include "levin/graph/replay/replay.h"
#include "levin/module/parameters.h"

namespace levin::graph {

class Recordings;
struct Variant;

/// A number that decides which operators run: a mode, a size of a group.
struct Guard {
  std::string_view what;
  ExactNumber value;
  std::string_view of = {};  ///< the parameter or module that it is of, where there are several
};

/// The inputs of a call and the values that it depends on. Names are for the log; they must last as
/// long as the call.
struct Conditions {
  std::vector<at::Tensor> inputs = {};  ///< undefined ones too; all that is new in each call
  std::vector<std::string_view> names = {};
  std::vector<Guard> guards = {};
  /// Numbers that the function gets and may leave unread, as the index of a batch. Under each new
  /// value it is called once; where it does what it did under others, it shares their recording.
  std::vector<Guard> arguments = {};
  /// The caller's number of the step, for messages; without it calls are counted from 0.
  std::optional<int64_t> step = {};
};

/// When the function is called instead of a replay and compared with the recording.
struct CheckOptions {
  static constexpr int64_t kDoubling = 0;  ///< the 1st, 2nd, 4th, 8th, ... call after recording
  static constexpr int64_t kNever = -1;
  int64_t every = kDoubling;  ///< or each n-th call; 1: all of them, so that nothing is replayed
  /// A difference is an Error "graph.check" instead of a warning after which nothing is replayed.
  bool stops = false;
  /// A check by running the function's code is left out if it needs more bytes beside state and
  /// inputs. 0: no limit.
  int64_t most_bytes = 0;
};

struct CompiledOptions {
  /// Names of tensors that live across calls; asked for when the function is recorded.
  std::function<std::vector<NamedTensor>()> state = nullptr;
  /// Parameters and buffers: where the host writes these within the function, it is not replayed.
  std::function<std::vector<at::Tensor>()> watched = nullptr;
  /// Is shown each recording, also one that cannot be replayed.
  std::function<void(const Graph&)> on_recorded = nullptr;
  /// Changes a recording before it is replayed. An Error of it goes to the log, and the recording
  /// is replayed as it was.
  std::function<void(Graph&)> pass = nullptr;
  /// Asked for when a recording is prepared for its replays; nullptr: the defaults.
  std::function<ReplayOptions()> replay = nullptr;
  /// The backend that records and replays the function; nullptr: make_replay_engine chooses.
  std::shared_ptr<CompileBackend> engine = nullptr;
  CheckOptions check = {};
  /// Limit of recordings for different conditions. Under further conditions the function runs
  /// eagerly.
  size_t max_recordings = 16;
};

/// The contract, as that of jax.jit and of CUDA graphs: a replay runs the operators that were
/// recorded, on the inputs of the call and on the tensors that lived before it (weights, buffers,
/// optimizer states, random generators), and no line of the function.
///
/// The first call runs the function eagerly: it makes tensors that live from then on, such as an
/// optimizer's state. The next ones under each set of conditions are recorded until two in a row
/// are equal in every operator, constant and state tensor: this finds a number that the host
/// changes from call to call, and a tensor that is new each time. Then the recording is replayed. A
/// function that cannot be replayed (HostPart::refuse) keeps running eagerly. The log has the
/// reason, and each new recording.
///
/// If the host reads a value by an operator (item(), torch::equal, a mask as an index), a replay
/// compares it with the recorded value. If they differ, the replay undoes its changes, and another
/// recording is replayed or the function is called. A function that reads another value in each
/// call keeps running eagerly. Reads by pointer (data_ptr, an accessor) are not seen.
///
/// Control flow may depend on values that are neither in the conditions nor passed to
/// HostPart::depends_on. If it was the same in two calls and changes later, the next check by
/// calling the function finds the change (CheckOptions, check_next), and the function runs eagerly
/// from then on. Replays between the change and the check did what was recorded.
class LEVIN_API Compiled {
 public:
  using Function = std::function<std::vector<at::Tensor>()>;

  explicit Compiled(std::string name, CompiledOptions options = {});
  ~Compiled();
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  /// Returns the function's results; results of a replay have no autograd graph. Throws the
  /// function's exceptions, and "graph.check". Within another Compiled's function it only calls its
  /// own.
  std::vector<at::Tensor> operator()(const Conditions& conditions, const Function& function);

  /// The next call of each recording is a check: something happened that may change what the
  /// function does.
  void check_next();

  /// While the function is being recorded, or called for the first time; else nullptr.
  HostPart* recording() const { return recording_; }
  const CompiledReport& report() const { return report_; }
  /// The recording that the last replay was of, as it was recorded and after the passes; nullptr
  /// before there is one.
  const Graph* graph() const;

 private:
  std::vector<at::Tensor> first(const Conditions& conditions, const Function& function);
  std::vector<at::Tensor> run_eager(const Function& function);
  Recordings* recordings_for(const Conditions& conditions);
  bool is_ready(Recordings& recordings, Variant* variant, const Conditions& conditions);
  bool is_check_due(Variant& variant) const;
  RecordedCall call_of(const Conditions& conditions, const Function& function,
                       HostPart* recording) const;
  std::vector<at::Tensor> while_recording(HostPart& recording, const Function& run);
  std::optional<std::vector<at::Tensor>> replay(Variant& variant, const Conditions& conditions);
  std::vector<at::Tensor> record(Recordings& recordings, const Conditions& conditions,
                                 const Function& function, Variant* expected);
  struct Recorded;
  void take(Recordings& recordings, const Conditions& conditions, Recorded recorded,
            Variant* expected);
  std::string reason_not_replayable(const Recorded& recorded) const;
  static std::string advice_for_answers(const Variant& variant);
  void watch_results(const std::vector<at::Tensor>& results);
  void make_runner(Recordings& recordings, Variant& variant, Graph graph);
  bool is_too_large(const Graph& graph) const;
  void end_replays(const Variant& expected, const Conditions& conditions,
                   const std::string& difference);
  int64_t step_of(const Conditions& conditions) const;
  void refuse(Recordings& recordings, std::string reason);
  void refuse(std::string reason);

  std::string name_;
  CompiledOptions options_;
  CompiledReport report_;
  std::vector<std::unique_ptr<Recordings>> recordings_;  ///< the one used last comes first
  int64_t num_calls_ = 0;
  bool is_full_ = false;
  bool is_ended_ = false;         ///< nothing is replayed any more
  std::vector<KeptTensor> kept_;  ///< tensors that outlive the last recording
  /// Backward went through a result of the first call.
  std::shared_ptr<bool> is_differentiated_ = std::make_shared<bool>(false);
  HostPart* recording_ = nullptr;
};

}  // namespace levin::graph
