#pragma once
// The state of a class of torch::optim, by parameter. The class' own archives go by address and
// hold full tensors; a checkpoint goes by name, and has shards of sharded parameters.

#include <optional>
#include <string>
#include <vector>

#include "levin/base/state.h"
#include "levin/module/parameters.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace levin::optim {

struct TorchState {
  std::string options;            ///< an archive of the class, with its groups and no more
  std::vector<State> parameters;  ///< tensors and numbers of each; empty where it keeps none
};

/// Returns nothing if the class keeps anything else than tensors and numbers for each parameter.
std::optional<TorchState> take_apart(const torch::optim::Optimizer& optimizer,
                                     const std::vector<NamedTensor>& parameters);
/// Gives the optimizer that state; tensors are of the parameters' own sizes. Throws what its class
/// throws for a state that it does not know.
void put_together(torch::optim::Optimizer& optimizer, const TorchState& state);

}  // namespace levin::optim
