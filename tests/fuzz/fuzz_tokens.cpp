// libFuzzer: open_token_file throws levin::Error or gives sequences and windows whose tokens are all
// there. The first two bytes say how many of the next are Megatron's index; the rest is the file.
//
//   fuzz_tokens -max_total_time=20

#include <ATen/core/Tensor.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "levin/base/error.h"
#include "levin/data/sources/sources.h"
#include "tests/fuzz/limits.h"

namespace {

namespace fs = std::filesystem;

/// A folder in memory, where there is one, for the two files of a pair.
struct PairOfFiles {
  fs::path folder;
  PairOfFiles() {
    const fs::path root = fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
    folder = root / ("fuzz_tokens." + std::to_string(::getpid()));
    fs::create_directories(folder);
  }
  ~PairOfFiles() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  void put(const char* name, const uint8_t* data, size_t size) const {
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
};

void touch_tokens(const fs::path& path, const std::string& dtype) {
  try {
    const auto tokens = levin::data::open_token_file(path, {.dtype = dtype});
    for (int64_t i = 0; i < std::min<int64_t>(tokens->num_sequences(), 100); ++i) {
      static_cast<void>(tokens->sequence(i));
    }
    const auto windows = levin::data::token_windows(tokens, {.length = 3, .stride = 2});
    const std::vector<int64_t> ends = {0, windows->size() - 1};
    static_cast<void>(windows->get(ends));
  } catch (const levin::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const Limits limits(size);
  static const PairOfFiles files;
  const size_t index = std::min<size_t>(data[0] + 256u * data[1], size - 2);
  fs::remove(files.folder / "a.idx");
  if (index > 0) files.put("a.idx", data + 2, index);
  files.put("a.bin", data + 2 + index, size - 2 - index);
  for (const char* dtype : {"auto", "uint16", "int64"}) touch_tokens(files.folder / "a.bin", dtype);
  return 0;
}
