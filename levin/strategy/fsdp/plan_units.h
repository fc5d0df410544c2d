#pragma once
// plan_units: which parameters of a module make up a unit.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/strategy/options.h"

namespace levin::fsdp {

struct UnitPlan {
  std::string name;
  std::vector<NamedTensor> parameters;  ///< parameters of one type, with at least one row each
  bool is_rest = false;  ///< parameters of no unit in a module with units: used at its ends, as a
                         ///< rule
  WrapOptions options = {};  ///< of the module that wrap() marked
};

struct Plan {
  std::vector<UnitPlan> units;  ///< in the order in which the module registers them
  std::vector<NamedTensor>
      replicated;  ///< without rows (0-dim) or elements: the same on every rank
};

/// A unit for each module that wrap() marked, of its parameters without those of units in it; what is
/// in none is cut into units of about so many bytes. A parameter that several modules share is in
/// the first one's, also where they are in different units. Throws Error "strategy.fsdp.parameter"
/// for a parameter that is not dense, and for complex parameters in a unit with a reduce_dtype.
LEVIN_API Plan plan_units(const torch::nn::Module& module, int64_t unit_bytes,
                          const std::function<bool(const std::string& name)>& is_ignored = {});
/// The same as the options say: unit_mb, ignored_params.
LEVIN_API Plan plan_units(const torch::nn::Module& module, const FsdpOptions& options);

/// The dtype in which gradients of a unit are reduced: what wrap() says, else what reduce_in_float32
/// makes of the dtype of its parameters.
inline at::ScalarType reduce_dtype_of(const FsdpOptions& options,
                                      std::optional<at::ScalarType> of_unit, at::ScalarType type) {
  const bool widens = options.reduce_in_float32 && c10::isReducedFloatingType(type);
  return of_unit && c10::isFloatingType(type) ? *of_unit : widens ? at::kFloat : type;
}

/// The patterns of names in FsdpOptions::ignored_params.
std::vector<std::string> ignored_patterns(const FsdpOptions& options);

}  // namespace levin::fsdp
