#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/careful_handler_impl.h"
#include "levin/graph/engine.h"
#include "levin/graph/fuse.h"
#include "levin/graph/passes.h"

namespace levin::graph {
namespace {

/// By input, how many tensors and views are held of it.
std::vector<size_t> holders_of(const std::vector<at::Tensor>& inputs) {
  std::vector<size_t> holders;
  for (const at::Tensor& input : inputs) {
    const bool has_storage = input.defined() && input.has_storage();
    holders.push_back(input.use_count() + (has_storage ? input.storage().use_count() : 0));
  }
  return holders;
}

/// A replay gets others, and leaves what the function kept of these as it was. `values`: what is
/// known to be held; their inputs are not looked at.
void check_inputs_are_let_go(const RecordedCall& call, const std::vector<size_t>& before,
                             const std::vector<at::Tensor>& values) {
  const std::vector<size_t> now = holders_of(call.inputs);
  for (size_t i = 0; i < now.size(); ++i) {
    const at::Tensor& input = call.inputs[i];
    const bool is_given = std::ranges::any_of(values, [&](const at::Tensor& value) {
      return input.defined() && value.defined() && value.has_storage() && value.is_alias_of(input);
    });
    LEVIN_CHECK(
        is_given || now[i] <= before[i], "graph.record.kept_input",
        "it keeps its input {}, or a view or an autograd graph of it; keep a clone, or what "
        "was computed from it detached",
        call.names[i]);
  }
}

class ReplayRunner final : public Runner {
 public:
  explicit ReplayRunner(const Graph& graph) : replay_(graph) {}

  std::optional<std::vector<at::Tensor>> operator()(
      const std::vector<at::Tensor>& inputs) override {
    return replay_.attempt(inputs);
  }
  const OtherRead* other_read() const override { return replay_.other_read(); }
  std::string trouble(const std::vector<at::Tensor>&) const override {
    const std::string moved = replay_.moved();
    return moved.empty() ? "" : moved + " has other memory than before";
  }
  ReplayReport report() const override { return replay_.report(); }

 private:
  Replay replay_;
};

class ReplayEngine final : public Engine {
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
    const std::vector<size_t> holders = holders_of(call.inputs);
    RecordingResult recorded;
    {
      const HandlerScope scope(handler);
      recorded.results = call.function();
    }
    // What autograd holds for these is of no use: a replay's results know nothing of it. And one
    // that somebody else has too is from here on another tensor.
    for (at::Tensor& result : recorded.results) {
      const bool is_given = !result.defined() || (result.is_leaf() && result.requires_grad()) ||
                            std::ranges::any_of(call.inputs, [&](const auto& input) {
                              return input.is_same(result);
                            });
      if (!is_given) result = result.detach();
    }
    handler.attempt([&] {
      std::vector<at::Tensor> values = recorded.results;
      for (const at::Tensor& value : call.more()) values.push_back(value);
      check_inputs_are_let_go(call, holders, values);
      recorded.kept = recorder.kept(values);
      for (const KeptTensor& kept : recorded.kept) values.push_back(kept.tensor());
      recorded.graph = recorder.finish(values);
    });
    recorded.trouble = handler.trouble();
    return recorded;
  }

  bool compares_host_reads() const override { return true; }

  std::unique_ptr<Runner> make_runner(Graph& graph,
                                      const std::function<void(Graph&)>& pass) override {
    eliminate_common_subexpressions(graph);
    graph.eliminate_dead_code();
    fuse(graph);
    if (pass) pass(graph);
    return std::make_unique<ReplayRunner>(graph);
  }
};

}  // namespace

Runner::~Runner() = default;
Engine::~Engine() = default;

std::unique_ptr<Engine> make_replay_engine() { return std::make_unique<ReplayEngine>(); }

}  // namespace levin::graph
