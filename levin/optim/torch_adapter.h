#pragma once
// A torch::optim class as one of levin's optimizers.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/optim/optimizer.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace levin::optim {

/// Makes the class of torch::optim that a description asks for, with these groups. members_of: the tensors of a
/// group. Throws Error "optim.group.weight_decay" as below.
std::shared_ptr<torch::optim::Optimizer> make_torch_class(
    const OptimizerConfig& config, const std::vector<ParameterGroup>& groups,
    const std::function<std::vector<at::Tensor>(const ParameterGroup&)>& members_of);

/// Throws Error "optim.state.order" unless the states of such a class are of these parameters, in this order.
void check_positions(const std::string& optimizer, const std::vector<NamedTensor>& parameters,
                     const State& states);

/// Bytes as a tensor for a state, and back.
at::Tensor packed(const std::string& bytes);
std::string unpacked(const at::Tensor& tensor);

/// Throws Error "optim.group.weight_decay" when a group overrides it, since the classes of
/// torch::optim have no common way to set it, and "optim.torch.divided" for a sharded parameter if
/// the class needs full ones (LBFGS).
std::unique_ptr<Optimizer> make_torch_adapter(const OptimizerConfig& config,
                                              std::vector<NamedTensor> parameters,
                                              std::vector<ParameterGroup> groups);

/// One that a user made, under the names that its parameters have among those given; its learning
/// rates stay its own, for schedules of torch::optim. Throws Error "optim.torch.parameters" for a
/// parameter that is not among them, and "optim.torch.divided" as above, or where it holds state of
/// a parameter from before that was divided (Adagrad makes it at once).
LEVIN_API std::unique_ptr<Optimizer> adapt_torch_optimizer(
    std::shared_ptr<torch::optim::Optimizer> optimizer, const std::vector<NamedTensor>& named);

}  // namespace levin::optim
