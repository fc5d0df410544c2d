#pragma once
// Tells whether random operators were called, also on devices whose generator does not show it.

#include <cstdint>

namespace levin::detail {

/// Looks at this thread's operators while it lives.
class RandomOperators {
 public:
  RandomOperators();
  ~RandomOperators();
  RandomOperators(const RandomOperators&) = delete;
  RandomOperators& operator=(const RandomOperators&) = delete;

  /// Dropout in evaluation mode, or with p = 0, does not count.
  bool were_called() const;

 private:
  uint64_t handle_;
  int64_t before_;
};

}  // namespace levin::detail
