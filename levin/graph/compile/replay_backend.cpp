#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/compile/compile_backend.h"
#include "levin/graph/compile/held_inputs.h"
#include "levin/graph/interpret/input_overlap_impl.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/record/careful_handler_impl.h"

namespace levin::graph {
namespace {

class ReplayRunner final : public Runner {
 public:
  ReplayRunner(const Graph& graph, const ReplayOptions& options)
      : overlap_(graph), replay_(graph, options) {}

  std::optional<std::vector<at::Tensor>> operator()(
      const std::vector<at::Tensor>& inputs) override {
    return replay_.attempt(inputs);
  }
  const OtherRead* other_read() const override { return replay_.other_read(); }
  std::string reason_not_replayable(const std::vector<at::Tensor>& inputs) const override {
    const std::string moved = replay_.moved();
    if (!moved.empty()) return moved + " has other memory than before";
    return replay_.report().num_captured > 0 ? overlap_.in(inputs) : "";
  }
  ReplayReport report() const override { return replay_.report(); }
  void leave_memory() override { replay_.leave_memory(); }

 private:
  InputOverlap overlap_;
  Replay replay_;
};

class ReplayEngine final : public CompileBackend {
 public:
  RecordingResult record(const RecordedCall& call) override {
    Recorder recorder({.allow_host_reads = true,
                       .host_read_sources = true,
                       .watch_host = true,
                       .expected = call.expected});
    CarefulHandler handler(recorder);
    handler.attempt([&] {
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        recorder.add_input(std::string(call.names[i]), call.inputs[i]);
      }
    });
    for (const NamedTensor& state : call.state) recorder.name_state(state.name, state.tensor);
    for (const at::Tensor& state : call.watched) recorder.watch_state(state);
    const HeldInputs held(call.inputs, call.names);
    RecordingResult recorded;
    {
      const HandlerScope scope(handler);
      recorded.results = call.function();
    }
    detach_results(recorded.results, call.inputs);
    handler.attempt([&] {
      std::vector<at::Tensor> values = recorded.results;
      for (const at::Tensor& value : call.more()) values.push_back(value);
      held.check(values);
      recorded.kept = recorder.kept(values);
      for (const KeptTensor& kept : recorded.kept) values.push_back(kept.tensor());
      recorded.graph = recorder.finish(values);
    });
    recorded.reason_not_recorded = handler.reason();
    return recorded;
  }

  bool compares_host_reads() const override { return true; }

  std::unique_ptr<Runner> make_runner(Graph& graph, const std::function<void(Graph&)>& pass,
                                      const ReplayOptions& options) override {
    eliminate_common_subexpressions(graph);
    graph.eliminate_dead_code();
    fuse(graph);
    if (pass) pass(graph);
    return std::make_unique<ReplayRunner>(graph, options);
  }
};

}  // namespace

Runner::~Runner() = default;
CompileBackend::~CompileBackend() = default;

std::unique_ptr<CompileBackend> make_replay_engine() { return std::make_unique<ReplayEngine>(); }

}  // namespace levin::graph
