#pragma once
// PartLogs: what the parts of a batch log, as the values of the whole batch.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "levin/observe/logger.h"

namespace levin::detail {

/// For the time of the object, tensors that are logged wait for finish(): means are weighted by the
/// samples of the parts. Numbers and metrics are logged by each part.
class PartLogs {
 public:
  explicit PartLogs(LoggedValues& values);
  ~PartLogs();
  PartLogs(const PartLogs&) = delete;
  PartLogs& operator=(const PartLogs&) = delete;

  /// A part of so many samples begins.
  void begin_part(int64_t samples) { samples_ = samples; }
  void finish();

 private:
  struct Entry {
    std::string name;
    LogOptions options;
    at::Tensor value;  ///< sum, minimum or maximum; a mean is still to be divided
    int64_t samples = 0;
  };
  bool note(std::string_view name, const at::Tensor& value, const LogOptions& options);

  LoggedValues& values_;
  std::vector<Entry> entries_;
  int64_t samples_ = 0;
};

}  // namespace levin::detail
