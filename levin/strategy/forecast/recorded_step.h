#pragma once
// RecordedStep: a training step's graph as a forecast reads it: for each operator its cost, the
// memory that is alive with it, the parameters that it reads and the gradients that it completes.
// Not for users.
//
//   const RecordedStep step = recorded_step(graph, description);

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"
#include "levin/strategy/forecast/description.h"

namespace levin::forecast {

/// An operator. Parameters by their number in Description::parameters.
struct Moment {
  double flops = 0.0;
  double bytes = 0.0;            ///< read and written
  bool is_half = false;          ///< computes in bfloat16 or float16
  int64_t live = 0;              ///< bytes of activations and temporary tensors, without gradients
  int64_t casts = 0;             ///< of these: copies of parameters in autocast's dtype
  std::vector<size_t> reads;     ///< parameters whose values it reads
  std::vector<size_t> arrivals;  ///< trained parameters whose gradient is complete after it
};

struct RecordedStep {
  std::vector<Moment> moments;  ///< operators in their order, without views
  size_t backward = 0;  ///< the first one of backward: gradients of the step before are gone
  size_t update = 0;    ///< the first one after the last gradient
  int64_t input_bytes = 0;
  std::vector<int64_t> state_bytes;  ///< by parameter, of the optimizer
  int64_t other_state_bytes = 0;     ///< step counts and the like
  /// By parameter: the dtype to which autocast casts each use of it; none if it is read otherwise.
  std::vector<std::optional<at::ScalarType>> cast_to;
  double flops = 0.0;
  int64_t tokens = 0;  ///< of a batch: elements of its integer tensors of two dims; 0: none
  bool writes_buffers = false;
};

/// Throws Error "strategy.forecast.step" for a graph without a gradient of any parameter.
LEVIN_API RecordedStep recorded_step(const graph::Graph& graph, const Description& description);

}  // namespace levin::forecast
