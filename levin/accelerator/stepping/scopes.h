#pragma once
// A stretch of a training loop runs under these: a batch of an accumulation window, gradients that stay local.

#include <utility>

#include "levin/accelerator/stepping/stepping.h"
#include "levin/base/export.h"

namespace levin {

/// Calls that function of Stepping when it ends; may be handed on.
template <void (Stepping::*kEnd)()>
class [[nodiscard]] SteppingScope {
 public:
  explicit SteppingScope(Stepping& stepping) : stepping_(&stepping) {}
  SteppingScope(SteppingScope&& other) noexcept
      : stepping_(std::exchange(other.stepping_, nullptr)) {}
  SteppingScope& operator=(SteppingScope&&) = delete;
  ~SteppingScope() {
    if (stepping_ != nullptr) (stepping_->*kEnd)();
  }

 private:
  Stepping* stepping_;
};

/// A batch of an accumulation window, for the time of the object.
class AccumulateScope : public SteppingScope<&Stepping::end_batch> {
 public:
  AccumulateScope(Stepping& stepping, const WindowPlace& place) : SteppingScope(stepping) {
    stepping.begin_batch(place);
  }
};

/// For the time of the object gradients stay those of this process.
class NoSyncScope : public SteppingScope<&Stepping::leave_no_sync> {
 public:
  explicit NoSyncScope(Stepping& stepping) : SteppingScope(stepping) { stepping.enter_no_sync(); }
};

}  // namespace levin
