// libFuzzer: Slurm's lists of hosts and of counts are expanded to at most 65,536, or refused.
//
//   fuzz_host_list -max_total_time=20

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "levin/base/error.h"
#include "levin/comm/environment/host_list.h"
#include "tests/fuzz/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr size_t kMost = 1 << 16;
  try {
    for (const auto& host : levin::comm::expand_host_list(text)) {
      if (host.empty() || host.size() > 255) std::abort();
    }
  } catch (const levin::Error&) {
  }
  try {
    const auto counts = levin::comm::expand_counts(text);
    if (counts.size() > kMost) std::abort();
    for (const int64_t count : counts) {
      if (count < 0) std::abort();
    }
  } catch (const levin::Error&) {
  }
  return 0;
}
