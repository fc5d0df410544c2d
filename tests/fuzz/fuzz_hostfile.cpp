// libFuzzer: read_hostfile gives hosts that a command line can name, or throws levin::Error.
//
//   fuzz_hostfile -max_total_time=20

#include "levin/base/error.h"
#include "levin/base/options.h"
#include "levin/launch/hostfile.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  const MemoryFile bytes(data, size);
  try {
    for (const levin::launch::Host& host : levin::launch::read_hostfile(bytes.path())) {
      const bool is_name =
          !host.name.empty() && host.name[0] != '-' && levin::printable(host.name) == host.name;
      if (!is_name || host.slots < 0 || host.slots > 1 << 20) std::abort();
    }
  } catch (const levin::Error&) {
  }
  return 0;
}
