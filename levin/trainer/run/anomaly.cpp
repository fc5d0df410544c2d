#include "levin/trainer/run/anomaly.h"

#include <torch/csrc/autograd/anomaly_mode.h>

#include <cstdint>
#include <mutex>

namespace levin::detail {
namespace {

using torch::autograd::AnomalyMode;

struct Detections {
  std::mutex mutex;
  int64_t count = 0;
  bool was_on = false;
  bool checked_nan = true;
};

Detections& detections() {
  static Detections all;
  return all;
}

}  // namespace

AnomalyDetection::AnomalyDetection() {
  Detections& all = detections();
  const std::lock_guard lock(all.mutex);
  if (all.count++ > 0) return;
  all.was_on = AnomalyMode::is_enabled();
  all.checked_nan = AnomalyMode::should_check_nan();
  AnomalyMode::set_enabled(true, /*check_nan=*/true);
}

AnomalyDetection::~AnomalyDetection() {
  Detections& all = detections();
  const std::lock_guard lock(all.mutex);
  if (--all.count == 0) AnomalyMode::set_enabled(all.was_on, all.checked_nan);
}

}  // namespace levin::detail
