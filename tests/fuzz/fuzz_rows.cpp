// libFuzzer: a file of tokenized rows with any lists, and the checksum that goes with them, is refused or read without a
// place outside.
//
//   fuzz_rows -max_total_time=20

#include "levin/base/error.h"
#include "levin/rows/cache/token_file.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/memory_file.h"

namespace {

namespace row = levin::text::row;

void read_all(const row::TokenFile& file) {
  unsigned sum = 0;
  for (int64_t i = 0; i < file.num_samples(); ++i) {
    int64_t size = 0;
    for (const int64_t sequence : file.sequences_of(i)) {
      for (const int32_t token : file.tokens(sequence)) sum += static_cast<unsigned>(token);
      if (file.has_second()) {
        for (const int32_t each : file.second(sequence)) sum += static_cast<unsigned>(each);
      }
      if (file.has_classes()) {
        sum += static_cast<unsigned>(file.class_of(file.about().is_packed ? sequence : i));
      }
      size += file.length(sequence);
    }
    if (file.has_numbers() && !file.about().is_packed) {
      for (const float number : file.numbers_of(i)) sum += number > 0;
    }
    if (file.sample_length(i) > size || file.sample_length(i) > file.about().report.longest) {
      std::abort();
    }
  }
  static_cast<void>(sum);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  const MemoryFile bytes(data, size);
  const MemoryFile sealed(data, 0);
  try {
    const levin::files::SafetensorsFile file(bytes.path());
    levin::files::TensorMetadata metadata = file.metadata();
    metadata["levin.rows"] = row::kRowsVersion;
    metadata["fingerprint"] = "f";
    metadata["xxh3"] = row::checksum_of(file.entries(), metadata);
    levin::files::write_safetensors(sealed.path(), file.entries(), metadata);
    read_all(row::TokenFile(sealed.path(), "f"));
  } catch (const levin::Error&) {
  } catch (const row::TokenFile::Refusal&) {
  }
  return 0;
}
