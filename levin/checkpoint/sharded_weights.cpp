#include "levin/checkpoint/sharded_weights.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/files/atomic.h"

namespace levin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// One file's at a time: as many as fit, and at least one.
std::vector<State> shards_of(const State& weights, int64_t max_shard_bytes) {
  std::vector<State> shards(1);
  int64_t bytes = 0;
  for (const auto& [name, value] : weights.values()) {
    const at::Tensor& tensor = weights.tensor(name);
    const auto more = static_cast<int64_t>(tensor.nbytes());
    if (bytes > 0 && bytes + more > max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().set(name, tensor);
    bytes += more;
  }
  return shards;
}

void remove_others(const fs::path& folder, const std::set<std::string>& kept) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_shard = name.starts_with("model-") && name.ends_with(".safetensors");
    std::error_code ignored;
    if ((is_shard || name == kWhole || name == kIndex) && !kept.contains(name)) {
      fs::remove(entry.path(), ignored);
    }
  }
}

}  // namespace

void save_sharded_weights(const fs::path& folder, const State& weights, int64_t max_shard_bytes) {
  LEVIN_CHECK(max_shard_bytes >= 1, "checkpoint.shard", "got {} bytes for a file, wanted some",
              max_shard_bytes);
  const std::vector<State> shards = shards_of(weights, max_shard_bytes);
  std::error_code error;
  fs::create_directories(folder, error);
  LEVIN_CHECK(!error, "files.write", "cannot make {}: {}", folder.string(), error.message());
  if (shards.size() == 1) {
    save_weights(folder / kWhole, weights);
    return remove_others(folder, {kWhole});
  }
  std::set<std::string> kept = {kIndex};
  json names = json::object();
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    save_weights(folder / file, shards[i]);
    kept.insert(file);
    for (const auto& [name, value] : shards[i].values()) {
      names[name] = file;
      total += static_cast<int64_t>(shards[i].tensor(name).nbytes());
    }
  }
  const json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(names)}};
  files::write_file_atomically(folder / kIndex, index.dump(2) + "\n");
  remove_others(folder, kept);
}

State load_sharded_weights(const fs::path& folder) {
  if (!fs::exists(folder / kIndex)) return load_weights(folder / kWhole);
  const json index =
      json::parse(std::ifstream(folder / kIndex), nullptr, /*allow_exceptions=*/false);
  const bool is_map =
      index.is_object() && index.contains("weight_map") && index["weight_map"].is_object();
  LEVIN_CHECK(is_map, "checkpoint.corrupt", "{} is no index of weights; write them again",
              (folder / kIndex).string());
  std::map<std::string, State> files;
  State weights;
  for (const auto& [name, file] : index["weight_map"].items()) {
    LEVIN_CHECK(
        file.is_string() && fs::path(file.get<std::string>()).filename() == file.get<std::string>(),
        "checkpoint.corrupt", "{} names no file of the folder for {}", (folder / kIndex).string(),
        name);
    const auto text = file.get<std::string>();
    if (!files.contains(text)) files[text] = load_weights(folder / text);
    LEVIN_CHECK(files[text].contains(name), "checkpoint.corrupt",
                "{} says that {} is in {}, which does not have it; write them again",
                (folder / kIndex).string(), name, text);
    weights.set(name, files[text].tensor(name));
  }
  return weights;
}

}  // namespace levin
