#include "levin/strategy/stray_gradients.h"

#include <utility>

#include "levin/base/check.h"

namespace levin {

void StrayGradients::check(std::string_view strategy) {
  if (first_.empty()) return;
  LEVIN_FAIL("strategy.backward.local",
             "{} has a gradient that the ranks have not averaged: loss.backward() was called and "
             "strategy '{}' needs accelerator.backward(loss), or manual_backward(loss) in a Module",
             std::exchange(first_, {}), strategy);
}

}  // namespace levin
