#include "levin/graph/record/trace.h"

#include <ATen/core/ivalue.h>
#include <fmt/format.h>

#include <mutex>

#include "levin/graph/record/interposer.h"
#include "levin/graph/record/recorder_impl.h"

namespace levin::graph {
namespace {

class RecordingHandler final : public OperatorHandler {
 public:
  explicit RecordingHandler(Recorder& recorder) : recorder_(recorder) {}

  void call(OperatorCall& call) override {
    auto recorded = [&] {
      const std::scoped_lock lock(mutex_);
      return recorder_.begin(call.op(), call.stack());
    }();
    call.proceed();
    const std::scoped_lock lock(mutex_);
    recorder_.end(std::move(recorded), call.stack());
  }

 private:
  Recorder& recorder_;
  std::mutex mutex_;
};

}  // namespace
}  // namespace levin::graph

namespace levin::detail {

graph::GraphModule trace(const TracedFunction& function, const std::vector<at::Tensor>& inputs,
                         const TraceOptions& options) {
  graph::Recorder recorder({.allow_host_reads = options.allow_host_reads,
                            .allow_captured = options.allow_captured,
                            .sources = options.sources});
  for (size_t i = 0; i < inputs.size(); ++i) {
    recorder.add_input(inputs.size() == 1 ? "input" : fmt::format("input_{}", i), inputs[i]);
  }
  for (const NamedTensor& state : options.state) recorder.name_state(state.name, state.tensor);
  graph::RecordingHandler handler(recorder);
  std::vector<at::Tensor> results;
  {
    const graph::HandlerScope scope(handler);
    results = function(inputs);
  }
  return graph::GraphModule(recorder.finish(results));
}

}  // namespace levin::detail
