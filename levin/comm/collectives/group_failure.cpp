#include "levin/comm/collectives/group_failure.h"

#include "levin/base/check.h"

namespace levin::comm {

void GroupFailure::check() const {
  const std::lock_guard lock(mutex_);
  LEVIN_CHECK(first_.empty(), "comm.closed", "the group has already failed: {}", first_);
}

void GroupFailure::note(std::string_view what) {
  const std::lock_guard lock(mutex_);
  if (first_.empty()) first_ = what;
}

}  // namespace levin::comm
