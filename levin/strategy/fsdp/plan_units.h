#pragma once
// plan_units: which parameters of a module make up a unit.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/module/parameters.h"
#include "levin/strategy/options.h"

namespace levin::fsdp {

struct UnitPlan {
  std::string name;
  std::vector<NamedTensor> parameters;  ///< parameters of one type, with at least one row each
  bool is_rest = false;  ///< parameters of no unit in a module with units: used at its ends, as a
                         ///< rule
};

struct Plan {
  std::vector<UnitPlan> units;  ///< in the order in which the module registers them
  std::vector<NamedTensor>
      replicated;  ///< without rows (0-dim) or elements: the same on every rank
};

/// A unit for each module that wrap() marked, of its parameters without those of units in it; what is
/// in none is cut into units of about so many bytes. A parameter that several modules share is in
/// the first one's, also where they are in different units. Throws Error "strategy.fsdp.parameter"
/// for a parameter that is not dense.
LEVIN_API Plan plan_units(const torch::nn::Module& module, int64_t unit_bytes,
                          const std::function<bool(const std::string& name)>& is_ignored = {});
/// The same as the options say: unit_mb, ignored_params.
LEVIN_API Plan plan_units(const torch::nn::Module& module, const FsdpOptions& options);

/// The patterns of names in FsdpOptions::ignored_params.
std::vector<std::string> ignored_patterns(const FsdpOptions& options);

}  // namespace levin::fsdp
