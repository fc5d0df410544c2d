#pragma once
// GroupFailure: what a group threw first. Its ranks are no longer in step then, so that every later call
// must fail as well. For all threads.

#include <mutex>
#include <string>
#include <string_view>

namespace levin::comm {

class GroupFailure {
 public:
  /// Throws "comm.closed" once something was noted.
  void check() const;
  void note(std::string_view what);

 private:
  mutable std::mutex mutex_;
  std::string first_;
};

}  // namespace levin::comm
