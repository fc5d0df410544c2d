#include "levin/graph/record/recording_session.h"

#include <optional>

#include "levin/base/check.h"
#include "levin/graph/record/careful_handler_impl.h"

namespace levin::graph {

struct RecordingSession::Impl {
  Recorder recorder{RecorderOptions{.allow_host_reads = true, .allow_stale = true}};
  CarefulHandler handler{recorder};
  std::optional<HandlerScope> scope;
};

RecordingSession::RecordingSession(const std::vector<NamedTensor>& state)
    : impl_(std::make_unique<Impl>()) {
  for (const NamedTensor& each : state) impl_->recorder.name_state(each.name, each.tensor);
  impl_->scope.emplace(impl_->handler);
}

RecordingSession::~RecordingSession() = default;

void RecordingSession::add_input(const std::string& name, const at::Tensor& tensor) {
  impl_->handler.attempt([&] {
    try {
      impl_->recorder.add_input(name, tensor);
    } catch (const Error& error) {
      if (error.id() != "graph.trace.overlap") throw;
    }
  });
}

Graph RecordingSession::finish() {
  impl_->scope.reset();
  std::optional<Graph> graph;
  impl_->handler.attempt([&] { graph = impl_->recorder.finish({}); });
  LEVIN_CHECK(graph.has_value(), "graph.stretch", "{}", impl_->handler.reason());
  return std::move(*graph);
}

}  // namespace levin::graph
