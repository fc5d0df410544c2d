#pragma once
// The memory that a call really takes, as ATen's allocators report it.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace levin::test {

/// Sums what this thread has allocated and not given back.
struct AllocationMeter final : c10::MemoryReportingInfoBase {
  int64_t now = 0;
  int64_t peak = 0;

  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now += bytes;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

/// Bytes at most, beyond those that were there before the call.
template <class Call>
int64_t peak_of(const Call& call) {
  const auto meter = std::make_shared<AllocationMeter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  call();
  return meter->peak;
}

}  // namespace levin::test
