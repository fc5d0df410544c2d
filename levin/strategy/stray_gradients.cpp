#include "levin/strategy/stray_gradients.h"

#include <utility>

#include "levin/base/check.h"

namespace levin {
namespace {

[[noreturn]] void fail(std::string_view strategy, const std::string& parameter) {
  LEVIN_FAIL("strategy.backward.local",
             "{} has a gradient that the ranks have not averaged: loss.backward() was called and "
             "strategy '{}' needs accelerator.backward(loss), or manual_backward(loss) in a Module",
             parameter, strategy);
}

}  // namespace

void check_no_gradients(std::string_view strategy, const std::vector<NamedTensor>& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (tensor.grad().defined()) fail(strategy, name);
  }
}

void StrayGradients::check(std::string_view strategy) {
  if (!first_.empty()) fail(strategy, std::exchange(first_, {}));
}

}  // namespace levin
