// Weights out of a folder, in one file or several, of safetensors or of torch.save.
#include <nlohmann/json.hpp>

#include <array>
#include <map>
#include <string>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/options.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/manifest_impl.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "levin/files/read_file.h"

namespace levin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The file of all weights; with ".index.json" behind it the index of several. The first that is there counts.
constexpr std::array<std::string_view, 2> kOneFile = {"model.safetensors", "pytorch_model.bin"};

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

fs::path index_beside(const fs::path& whole) { return whole.string() + ".index.json"; }

json read_weight_map(const fs::path& file) {
  const std::string text = files::read_file(file);
  json index = json::parse(detail::shallow_json(text), nullptr, /*allow_exceptions=*/false);
  const bool is_map =
      index.is_object() && index.contains("weight_map") && index["weight_map"].is_object();
  LEVIN_CHECK(is_map, "checkpoint.corrupt",
              "{} is not an index of weights; write the weights again", file.string());
  return index;
}

State read_one(const fs::path& file) {
  return file.extension() == ".bin" ? load_torch_weights(file) : load_weights(file);
}

State read_shards(const fs::path& folder, const fs::path& index) {
  const json tree = read_weight_map(index);
  std::map<std::string, State> files;
  State weights;
  for (const auto& [name, file] : tree["weight_map"].items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : "";
    LEVIN_CHECK(detail::is_plain_name(text), "checkpoint.corrupt",
                "{} names no file of its folder for {}; write the weights again", index.string(),
                printable(name));
    if (!files.contains(text)) {
      LEVIN_CHECK(
          is_there(folder / text), "checkpoint.missing",
          "{} lists {} in file {}, but that file does not exist; copy all files of the folder",
          index.string(), printable(name), printable(text));
      files[text] = read_one(folder / text);
    }
    LEVIN_CHECK(
        files[text].contains(name), "checkpoint.corrupt",
        "{} lists {} in file {}, but that file does not contain it; write the weights again",
        index.string(), printable(name), printable(text));
    weights.set(name, files[text].tensor(name));
  }
  return weights;
}

}  // namespace

bool holds_weights(const fs::path& folder) {
  for (const std::string_view whole : kOneFile) {
    if (is_there(index_beside(folder / whole)) || is_there(folder / whole)) return true;
  }
  return false;
}

bool is_folder_of_weights(const fs::path& folder) {
  return !is_there(folder / detail::kManifestName) && !is_there(folder / detail::kTrainingJson) &&
         holds_weights(folder);
}

State load_sharded_weights(const fs::path& folder) {
  for (const std::string_view whole : kOneFile) {
    const fs::path index = index_beside(folder / whole);
    if (is_there(index)) return read_shards(folder, index);
    if (is_there(folder / whole)) return read_one(folder / whole);
  }
  return load_weights(folder / kOneFile.front());  // the file does not exist: throws its error
}

}  // namespace levin
