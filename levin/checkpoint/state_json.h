#pragma once
// A State as JSON with its tensors apart.

#include <string>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace levin {

struct StateJson {
  std::string json;  ///< UTF-8, the same bytes for the same state
  State tensors;     ///< by path, "optimizers/0/parameters/net.weight/exp_avg"; parts of some too
};

LEVIN_API StateJson state_to_json(const State& state);

/// Throws Error "checkpoint.corrupt" for text that is no such state; `file` is named in it.
LEVIN_API State state_from_json(const StateJson& parts, const std::string& file);
/// The same without its tensors.
State scalars_from_json(const std::string& text, const std::string& file);

}  // namespace levin
