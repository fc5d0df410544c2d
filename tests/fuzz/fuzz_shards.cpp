// libFuzzer: a folder with any index of weights loads tensors of its own files, or throws
// levin::Error.
//
//   fuzz_shards -max_total_time=20

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "levin/base/error.h"
#include "levin/checkpoint/checkpoint.h"
#include "tests/fuzz/limits.h"

namespace {

namespace fs = std::filesystem;

/// Two files of a tensor each, beside one of another folder that no index reaches.
struct Folder {
  fs::path root;

  Folder() {
    std::string name = (fs::temp_directory_path() / "fuzz_shards_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    root = name;
    levin::State weights, others;
    weights.set("a", at::zeros({2}));
    weights.set("b", at::zeros({3}));
    levin::save_sharded_weights(inside(), weights, 8);
    others.set("c", at::ones({2}));
    levin::save_sharded_weights(root, others, 1024);
  }
  ~Folder() { fs::remove_all(root); }
  fs::path inside() const { return root / "weights"; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  static const Folder folder;
  std::ofstream(folder.inside() / "model.safetensors.index.json", std::ios::binary)
      << std::string_view(reinterpret_cast<const char*>(data), size);
  try {
    const levin::State weights = levin::load_sharded_weights(folder.inside());
    for (const auto& [name, value] : weights.values()) {
      const bool is_known = name == "a" || name == "b";
      if (!is_known || weights.tensor(name).sum().item<double>() != 0) std::abort();
    }
  } catch (const levin::Error& error) {
    if (!error.id().starts_with("checkpoint.") && !error.id().starts_with("files.")) std::abort();
  }
  return 0;
}
