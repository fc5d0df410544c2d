// libFuzzer: read_idx throws levin::Error or gives as many bytes as its shape says.
//
//   fuzz_idx -max_total_time=20

#include "levin/base/error.h"
#include "levin/files/idx.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  const MemoryFile bytes(data, size);
  try {
    const levin::files::IdxArray array = levin::files::read_idx(bytes.path());
    size_t count = array.shape.empty() ? 0 : 1;
    for (const int64_t length : array.shape) count *= static_cast<size_t>(length);
    const bool whole = count == 0 ? array.data.empty() : array.data.size() % count == 0;
    if (!whole || array.data.size() < count) std::abort();
  } catch (const levin::Error&) {
  }
  return 0;
}
