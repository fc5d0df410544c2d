#pragma once
// What a forward pass reads from torch::nn's modules beside tensors, and that users change in a
// run: a dropout's rate, a norm's epsilon, the length of a Sequential. Guards of a recorded step.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::detail {

/// Of one module, which must outlive it.
struct ModuleOptions {
  std::string of;
  /// Another number whenever one of them is another.
  std::function<int64_t()> fingerprint;
  int64_t num_children =
      -1;  ///< of a container, when this was made: its fingerprint is their number
};

/// Of those that have any; of a module of the user's nothing is known.
std::vector<ModuleOptions> options_of(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
    const std::vector<std::string>& names);

}  // namespace levin::detail
