// libFuzzer: load_exported and read_program throw levin::Error or give a module or a program. Nothing is run: the
// operators of a forged program are LibTorch's own.
//
//   fuzz_exported -max_total_time=20

#include "levin/base/error.h"
#include "levin/interchange/load_exported.h"
#include "levin/interchange/program/program.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (text.starts_with("{")) {
      const auto program = levin::interchange::read_program(text);
      if (program.inputs.size() != program.body.inputs.size()) std::abort();
    } else {
      const MemoryFile bytes(data, size);
      const auto net = levin::load_exported(bytes.path());
      for (const auto& parameter : net->parameters()) {
        if (parameter.storage().nbytes() > size) std::abort();
      }
    }
  } catch (const levin::Error&) {
  }
  return 0;
}
