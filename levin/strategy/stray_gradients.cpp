#include "levin/strategy/stray_gradients.h"

#include <utility>

#include "levin/base/check.h"

namespace levin {

void StrayGradients::check(std::string_view strategy) {
  if (first_.empty()) return;
  LEVIN_FAIL("strategy.backward.local",
             "parameter {} has a gradient that was not averaged over the ranks, because "
             "loss.backward() was called; strategy '{}' needs accelerator.backward(loss), or "
             "manual_backward(loss) in a Module",
             std::exchange(first_, {}), strategy);
}

}  // namespace levin
