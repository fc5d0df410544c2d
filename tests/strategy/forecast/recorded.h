#pragma once
// The step of a task as a forecast reads it: recorded of a model without memory.

#include <optional>

#include "levin/graph/fake/fake_tensors.h"
#include "levin/graph/record/recording_session.h"
#include "levin/strategy/forecast/forecast.h"
#include "tests/strategy/table.h"

namespace levin::test {

struct RecordedCase {
  forecast::Description description;
  forecast::RecordedStep step;
};

/// The second step of the case's task on one of so many ranks, whatever its strategy.
inline RecordedCase recorded_case(table::Case c, int64_t ranks) {
  const FsdpOptions fsdp = c.fsdp;
  const DdpOptions ddp = c.ddp;
  c.strategy = "single";
  c.fsdp = {};
  c.ddp = {};
  table::Setup setup(c, comm::ProcessGroup());
  torch::nn::Module& module = *setup.task.module;
  graph::drop_memory(module);
  const graph::FakeScope scope;
  setup.optimizer = setup.strategy->build_optimizer(optimizer_of(c), named_parameters(module));
  const auto batch = [&](int64_t number) {
    return graph::without_memory(setup.task.inputs(number).slice(0, 0, kGlobalBatch, ranks));
  };
  setup.losses_of(c, batch(0));
  std::vector<NamedTensor> state = named_parameters(module);
  for (const auto& buffer : module.named_buffers()) state.push_back({buffer.key(), buffer.value()});
  for (const NamedTensor& each : setup.optimizer->named_state()) state.push_back(each);
  graph::RecordingSession session(state);
  const at::Tensor inputs = batch(1);
  session.add_input("x", inputs);
  setup.losses_of(c, inputs);
  const graph::Graph graph = session.finish();
  RecordedCase recorded;
  recorded.description = forecast::describe({setup.task.module}, fsdp);
  recorded.description.samples = inputs.size(0) / c.accumulate;
  recorded.description.batches = c.accumulate;
  recorded.description.ddp = ddp;
  recorded.step = forecast::recorded_step(graph, recorded.description);
  return recorded;
}

}  // namespace levin::test
