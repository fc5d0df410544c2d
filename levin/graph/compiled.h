#pragma once
// Compiled: a function of tensors that runs as it is at first, is recorded twice, and is replayed
// from then on, as long as all holds that it was recorded for.
//
//   Compiled step("step");
//   const auto results = step({.inputs = {x, y}, .names = {"x", "y"}},
//                             [&] { return std::vector{train_step(x, y)}; });

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/engine.h"
#include "levin/graph/graph.h"
#include "levin/graph/recording.h"
#include "levin/graph/replay.h"
#include "levin/module/parameters.h"

namespace levin::graph {

/// A number that decides which operators run: a mode, a size of a group.
struct Guard {
  std::string_view what;
  double value = 0.0;
  std::string_view of = {};  ///< the parameter or module that it is of, where there are several
};

/// What a call depends on. Names are for the log; they must last as long as the call.
struct Conditions {
  std::vector<at::Tensor> inputs = {};  ///< undefined ones too; all that is new in each call
  std::vector<std::string_view> names = {};
  std::vector<Guard> guards = {};
};

struct CompiledOptions {
  /// Names of tensors that live across calls; asked for when the function is recorded.
  std::function<std::vector<NamedTensor>()> state = nullptr;
  /// Is shown each recording, also one that cannot be replayed.
  std::function<void(const Graph&)> on_recorded = nullptr;
  /// Changes a recording before it is replayed. An Error of it goes to the log, and the recording
  /// is replayed as it was.
  std::function<void(Graph&)> pass = nullptr;
  /// How it is recorded and run again; nullptr: as make_replay_engine says.
  std::shared_ptr<Engine> engine = nullptr;
  /// For different conditions. Under others the function then runs as it is.
  size_t max_recordings = 16;
};

/// What it has done so far, counted in calls.
struct CompiledReport {
  int64_t eager = 0;
  int64_t recorded = 0;
  int64_t replayed = 0;
  std::vector<ReplayReport> replays = {};  ///< of each recording that is replayed
  std::vector<std::string> refusals = {};  ///< why the function runs as it is
};

/// The first call runs the function as it is: it makes what lives from then on, as an optimizer's
/// state. The next ones under each set of conditions are recorded until two in a row are equal in
/// every operator, constant and state tensor: a number that the host changes from call to call, or
/// a tensor that is a new one each time, is seen by that. Then the recording is replayed. A
/// function that cannot be (the host reads a value, Recording::refuse) goes on as it is, with the
/// reason in the log; so does each new recording. A control flow that depends on what is neither in
/// the conditions nor the same in two calls is not seen.
class LEVIN_API Compiled {
 public:
  using Function = std::function<std::vector<at::Tensor>()>;

  explicit Compiled(std::string name, CompiledOptions options = {});
  ~Compiled();
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  /// What the function returns; from a replay these know nothing of autograd. Throws what the
  /// function throws.
  std::vector<at::Tensor> operator()(const Conditions& conditions, const Function& function);

  /// While the function is being recorded, or called for the first time; else nullptr.
  Recording* recording() const { return recording_; }
  const CompiledReport& report() const { return report_; }
  /// The recording that the last replay was of, as it was recorded and after the passes; nullptr
  /// before there is one.
  const Graph* graph() const;

 private:
  struct Entry;

  Entry* entry_for(const Conditions& conditions);
  bool is_ready(Entry& entry, const Conditions& conditions);
  RecordedCall call_of(const Conditions& conditions, const Function& function,
                       Recording* recording) const;
  std::vector<at::Tensor> while_recording(Recording& recording, const Function& run);
  std::vector<at::Tensor> replay(Entry& entry, const Conditions& conditions);
  std::vector<at::Tensor> record(Entry& entry, const Conditions& conditions,
                                 const Function& function);
  void take(Entry& entry, Graph graph, Recording recording, size_t num_results);
  void refuse(Entry& entry, std::string reason);
  void refuse(std::string reason);

  std::string name_;
  CompiledOptions options_;
  CompiledReport report_;
  std::vector<std::unique_ptr<Entry>> entries_;  ///< the one used last comes first
  bool is_full_ = false;
  Recording* recording_ = nullptr;
};

}  // namespace levin::graph
