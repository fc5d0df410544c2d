// libFuzzer: a folder with any manifest, as it is and with a checksum that is right, loads as a
// checkpoint of files of its own, or throws levin::Error.
//
//   fuzz_checkpoint -max_total_time=20

#define XXH_INLINE_ALL
#include <nlohmann/json.hpp>
#include <stdlib.h>
#include <xxhash.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "levin/base/error.h"
#include "levin/base/json.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/tensor_file.h"
#include "tests/fuzz/limits.h"

namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;

  Folder() {
    std::string name = (fs::temp_directory_path() / "fuzz_checkpoint_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path = name;
    fs::create_directory(path / "c");
    levin::write_tensors(path / "c/model.safetensors", levin::State());
    levin::write_tensors(path / "c/training_state.safetensors", levin::State());
    std::ofstream(path / "c/training_state.json") << "{}";
  }
  ~Folder() { fs::remove_all(path); }
};

void load(const fs::path& folder, const std::string& manifest) {
  std::ofstream(folder / "manifest.json", std::ios::binary) << manifest;
  try {
    const levin::Checkpoint checkpoint = levin::load_checkpoint(folder);
    for (const auto& [name, weights] : checkpoint.weights) {
      if (name.find('/') != std::string::npos || name == "..") std::abort();
    }
    if (!checkpoint.training.empty()) std::abort();
  } catch (const levin::Error& error) {
    if (!error.id().starts_with("checkpoint.") && !error.id().starts_with("files.")) std::abort();
  }
}

std::string sealed(const std::string& text) {
  nlohmann::json manifest =
      nlohmann::json::parse(levin::detail::shallow_json(text), nullptr, false);
  if (!manifest.is_object()) return text;
  manifest.erase("seal");
  const std::string content =
      manifest.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(content.data(), content.size())));
  manifest["seal"] = hash;
  return manifest.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  static const Folder folder;
  const std::string text(reinterpret_cast<const char*>(data), size);
  load(folder.path / "c", text);
  load(folder.path / "c", sealed(text));
  return 0;
}
