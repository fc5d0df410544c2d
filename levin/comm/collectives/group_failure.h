#pragma once
// GroupFailure: what a group threw first. Its ranks are no longer in step then, so that every later call
// must fail as well. For all threads.

#include <mutex>
#include <string>
#include <string_view>

#include "levin/base/check.h"

namespace levin::comm {

class GroupFailure {
 public:
  /// Throws "comm.closed" once something was noted.
  void check() const {
    const std::lock_guard lock(mutex_);
    LEVIN_CHECK(first_.empty(), "comm.closed", "the group failed before: {}", first_);
  }

  void note(std::string_view what) {
    const std::lock_guard lock(mutex_);
    if (first_.empty()) first_ = what;
  }

 private:
  mutable std::mutex mutex_;
  std::string first_;
};

}  // namespace levin::comm
