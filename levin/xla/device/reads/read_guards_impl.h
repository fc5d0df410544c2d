#pragma once
// ReadGuards: what the host reads in a recorded step, read again before each run of its program.
//
//   ReadGuards guards(impl, graph);
//   guards.prepare(inputs);
//   if (auto other = guards.other(inputs)) ...               // the step would go another way

#include <memory>
#include <optional>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/graph/replay/replay.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {

struct RuntimeImpl;

class ReadGuards {
 public:
  ReadGuards(RuntimeImpl& impl, const graph::Graph& step);

  /// For inputs that lie as these do.
  void prepare(const std::vector<at::Tensor>& inputs);
  /// The first read that gives something else than in the recording. Changes nothing.
  std::optional<graph::OtherRead> other(const std::vector<at::Tensor>& inputs);

 private:
  struct Read {
    size_t number;  ///< place among all reads of the graph
    c10::OperatorHandle op;
    std::shared_ptr<const graph::HostRead> was;
    std::vector<const graph::Value*> operands;
  };
  Binding binding(const std::vector<at::Tensor>& inputs) const;
  at::Tensor value_of(const graph::Value& operand, const std::vector<at::Tensor>& computed,
                      const Binding& binding) const;

  RuntimeImpl& impl_;
  graph::Graph graph_;  ///< gives the values that must be computed for them
  std::vector<Read> reads_;
  std::vector<const graph::Value*> computed_;
  Program program_;
  const pjrt::Executable* executable_ = nullptr;  ///< nullptr: nothing must be computed
};

}  // namespace levin::xla
