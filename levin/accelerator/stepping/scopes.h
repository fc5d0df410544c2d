#pragma once
// What a stretch of a training loop runs under: a batch of an accumulation window, gradients that stay local.

#include <utility>

#include "levin/accelerator/stepping/stepping.h"
#include "levin/base/export.h"

namespace levin {

/// A batch of an accumulation window, for the time of the object.
class LEVIN_API AccumulateScope {
 public:
  AccumulateScope(Stepping& stepping, const WindowPlace& place) : stepping_(&stepping) {
    stepping.begin_batch(place);
  }
  AccumulateScope(AccumulateScope&& other) noexcept
      : stepping_(std::exchange(other.stepping_, nullptr)) {}
  AccumulateScope& operator=(AccumulateScope&&) = delete;
  ~AccumulateScope() {
    if (stepping_ != nullptr) stepping_->end_batch();
  }

 private:
  Stepping* stepping_;
};

/// For the time of the object gradients stay those of this process.
class LEVIN_API NoSyncScope {
 public:
  explicit NoSyncScope(Stepping& stepping) : stepping_(&stepping) { stepping.enter_no_sync(); }
  NoSyncScope(NoSyncScope&& other) noexcept : stepping_(std::exchange(other.stepping_, nullptr)) {}
  NoSyncScope& operator=(NoSyncScope&&) = delete;
  ~NoSyncScope() {
    if (stepping_ != nullptr) stepping_->leave_no_sync();
  }

 private:
  Stepping* stepping_;
};

}  // namespace levin
