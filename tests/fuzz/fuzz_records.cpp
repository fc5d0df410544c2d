// libFuzzer: JSON lines and CSV throw levin::Error, or every row has the names of the header and says where it stands.
//
//   fuzz_records -max_total_time=20

#include "levin/base/error.h"
#include "levin/data/sources/sources.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/memory_file.h"

namespace {

void read_all(const levin::data::RecordsPtr& records) {
  for (int64_t i = 0; i < records->size(); ++i) {
    try {
      const levin::data::Record record = records->read(i);
      for (const std::string& name : record.names()) {
        if (!record.has(name) || record.json(name).empty()) std::abort();
      }
      if (record.where().find(", line ") == std::string::npos) std::abort();
    } catch (const levin::Error&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  const MemoryFile bytes(data, size);
  read_all(levin::data::json_lines(bytes.path()));
  try {
    read_all(levin::data::csv(bytes.path()));
  } catch (const levin::Error&) {
  }
  return 0;
}
