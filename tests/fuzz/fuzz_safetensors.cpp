// libFuzzer: SafetensorsFile throws levin::Error or gives entries that lie inside the file.
//
//   fuzz_safetensors -max_total_time=20

#include "levin/base/error.h"
#include "levin/files/safetensors.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  const MemoryFile bytes(data, size);
  try {
    const levin::files::SafetensorsFile file(bytes.path());
    size_t total = 0;
    unsigned sum = 0;
    for (const auto& entry : file.entries()) {
      for (const std::byte byte : entry.data) sum += static_cast<unsigned>(byte);
      total += entry.data.size();
      if (file.find(entry.name) != &entry) std::abort();
    }
    if (total > size || sum > 255 * total) std::abort();
  } catch (const levin::Error&) {
  }
  return 0;
}
