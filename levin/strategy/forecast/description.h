#pragma once
// Description: what a forecast of a training step needs of its model beside the recorded graph:
// parameters, the units in which they are sharded, and the options of strategies.
// Not for users.
//
//   const Description description = forecast::describe({net}, {.unit_mb = 16});
//   std::ofstream("model.json") << forecast::to_json(description);

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/module/wrap.h"
#include "levin/strategy/options.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::forecast {

struct LEVIN_API PlannedParameter {
  std::string name;  ///< as the recorded graph names it
  std::vector<int64_t> sizes;
  at::ScalarType type = at::kFloat;
  bool trains = true;  ///< requires_grad
  int64_t unit = -1;   ///< in Description::units; -1: it is not sharded (0-dim)

  int64_t numel() const;
  int64_t bytes() const;
};

struct PlannedUnit {
  std::string name;
  bool is_rest = false;  ///< parameters outside of wrapped modules, in a module that has some
  WrapOptions options = {};
};

struct Description {
  std::vector<PlannedParameter> parameters;  ///< in the order in which the modules register them
  std::vector<PlannedUnit> units;            ///< in that order, too
  int64_t buffer_bytes = 0;
  int64_t samples = 0;  ///< of a batch of one rank
  int64_t batches = 1;  ///< of a step: gradient accumulation
  std::string precision;
  DdpOptions ddp;
  FsdpOptions fsdp;
  /// Operators that read values on the host, and how often: a step without memory has none, so that
  /// each number was taken as 1.
  std::map<std::string, int64_t> reads;
};

/// Describes the modules of a run, with the units that these options make.
LEVIN_API Description describe(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                               const FsdpOptions& options);
LEVIN_API std::string to_json(const Description& description);
/// Reads what to_json wrote. Throws Error "strategy.forecast.description" for other text.
LEVIN_API Description description_of(std::string_view json);

}  // namespace levin::forecast
