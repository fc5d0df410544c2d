// libFuzzer: a tar shard throws levin::Error, or gives samples whose files lie within it.
//
//   fuzz_tar -max_total_time=20

#include "levin/base/error.h"
#include "levin/data/sources/sources.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  const MemoryFile file(data, size);
  size_t used = 0;
  const auto decode = [&](const levin::data::TarSample& sample) {
    if (sample.files.empty() || sample.key.empty()) std::abort();
    for (const auto& [extension, bytes] : sample.files) {
      used += bytes.size();
      for (const std::byte byte : bytes) static_cast<void>(static_cast<volatile std::byte>(byte));
    }
    return levin::data::Sample();
  };
  try {
    const auto stream = levin::data::tar_shards({file.path()}, decode)->open(0, {});
    for (levin::data::Sample sample; stream->next(sample);) {
    }
  } catch (const levin::Error&) {
  }
  if (used > size) std::abort();
  return 0;
}
