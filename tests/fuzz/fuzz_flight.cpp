// libFuzzer: what another rank leaves of its last operations reads as operations that are written
// and read as they are, and are told about, or as none.
//
//   fuzz_flight -max_total_time=20

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "levin/comm/watchdog/flight_recorder.h"
#include "tests/fuzz/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  using namespace levin::comm;  // NOLINT
  const auto operations =
      decode_operations(std::string_view(reinterpret_cast<const char*>(data), size));
  const std::string text = encode(operations);
  if (encode(decode_operations(text)) != text) std::abort();
  const FlightRecord record = {{0, operations}, {1, {{"world", 2, "barrier", 1, -1}}}};
  if (explain(record, {0, 1, 2}, "world", 2).empty()) std::abort();
  return 0;
}
