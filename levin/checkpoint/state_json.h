#pragma once
// A State as JSON with its tensors apart.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "levin/base/state.h"

namespace levin {

struct StateJson {
  std::string json;  ///< UTF-8, the same bytes for the same state
  std::map<std::string, at::Tensor>
      tensors;  ///< by path, "optimizers/0/parameters/net.weight/exp_avg"
};

StateJson state_to_json(const State& state);

/// Throws Error "checkpoint.corrupt" for text that is no such state; `file` is named in it.
State state_from_json(const StateJson& parts, const std::string& file);

}  // namespace levin
