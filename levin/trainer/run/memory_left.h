#pragma once
// The memory that a trial of a larger batch will need.
// Not for users.

#include <cstdint>
#include <optional>

#include "levin/base/export.h"
#include "levin/base/memory/memory_limits.h"

namespace levin::detail {

/// Forecasts the peak of a trial from the peaks of smaller ones: memory grows linearly with the
/// batch size.
class LEVIN_API PeakForecast {
 public:
  /// before: resident bytes before the first trial.
  explicit PeakForecast(int64_t before) : before_(before) {}
  /// Notes the peak of a trial that fitted.
  void note(int64_t size, int64_t peak);
  /// Returns the bytes of a trial with that size; nothing before the first one.
  std::optional<int64_t> peak_of(int64_t size) const;

 private:
  struct Trial {
    int64_t size = 0;
    int64_t peak = 0;
  };
  int64_t before_;
  std::optional<Trial> last_, last_but_one_;
};

}  // namespace levin::detail
