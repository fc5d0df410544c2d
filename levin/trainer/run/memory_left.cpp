#include "levin/trainer/run/memory_left.h"

#include <algorithm>

namespace levin::detail {

void PeakForecast::note(int64_t size, int64_t peak) {
  if (last_ && last_->size != size) last_but_one_ = last_;
  last_ = Trial{size, peak};
}

std::optional<int64_t> PeakForecast::peak_of(int64_t size) const {
  if (!last_) return std::nullopt;
  const Trial other = last_but_one_.value_or(Trial{0, before_});
  const double slope =
      static_cast<double>(last_->peak - other.peak) / static_cast<double>(last_->size - other.size);
  return last_->peak +
         static_cast<int64_t>(std::max(slope, 0.0) * static_cast<double>(size - last_->size));
}

}  // namespace levin::detail
