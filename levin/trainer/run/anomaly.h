#pragma once
// LibTorch's anomaly detection for the time of a fit. It is one flag of the process, which fits in
// several threads share: the first turns it on, the last puts back what was.

namespace levin::detail {

class AnomalyDetection {
 public:
  AnomalyDetection();
  ~AnomalyDetection();
  AnomalyDetection(const AnomalyDetection&) = delete;
  AnomalyDetection& operator=(const AnomalyDetection&) = delete;
};

}  // namespace levin::detail
