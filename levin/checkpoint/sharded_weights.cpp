#include "levin/checkpoint/sharded_weights.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/posix.h"
#include "levin/base/text.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/manifest_impl.h"
#include "levin/checkpoint/tensor_file.h"
#include "levin/files/atomic.h"
#include "levin/files/folder.h"
#include "levin/files/read_file.h"

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
    // What a file cannot hold is said where it is written.
    const bool has_bytes = tensor.defined() && tensor.layout() == at::kStrided;
    const auto more = has_bytes ? static_cast<int64_t>(tensor.nbytes()) : 0;
    if (bytes > 0 && bytes + more > max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().set(name, tensor);
    bytes += more;
  }
  return shards;
}

/// "model-00001-of-00003.safetensors" and no other name.
bool is_shard(const std::string& name) {
  static const std::regex form("model-[0-9]{5}-of-[0-9]{5}\\.safetensors");
  return std::regex_match(name, form);
}

void remove_file(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  LEVIN_CHECK(!error, "files.write", "cannot remove {}: {}", file.string(), error.message());
}

/// Weights of an earlier save that are no part of this one. A file that cannot be removed costs
/// room and nothing else.
void remove_others(const fs::path& folder, const std::set<std::string>& kept) {
  std::error_code ignored;
  for (const fs::path& entry : files::entries_of(folder)) {
    const std::string name = entry.filename().string();
    if ((is_shard(name) || name == kWhole) && !kept.contains(name)) fs::remove(entry, ignored);
  }
}

json read_index(const fs::path& file) {
  const std::string text = files::read_file(file);
  json index = json::parse(detail::shallow_json(text), nullptr, /*allow_exceptions=*/false);
  const bool is_map =
      index.is_object() && index.contains("weight_map") && index["weight_map"].is_object();
  LEVIN_CHECK(is_map, "checkpoint.corrupt", "{} is no index of weights; write them again",
              file.string());
  return index;
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
    remove_file(folder / kIndex);  // before what it names
    return remove_others(folder, {kWhole});
  }
  std::set<std::string> kept;
  json names = json::object();
  int64_t total = 0;
  bool are_new = true;
  std::vector<std::unique_ptr<files::StagedFile>> staged;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    staged.push_back(std::make_unique<files::StagedFile>(folder / file));
    write_tensors(staged.back()->path(), shards[i]);
    are_new = are_new && !fs::exists(fs::symlink_status(folder / file, error));
    kept.insert(file);
    for (const auto& [name, value] : shards[i].values()) {
      names[name] = file;
      total += static_cast<int64_t>(shards[i].tensor(name).nbytes());
    }
  }
  // All of it is on the disk. From here on a death leaves the files of one save with their index,
  // or files of two without any.
  if (!are_new) {
    remove_file(folder / kIndex);
    posix::sync_path(folder);
  }
  for (const auto& shard : staged) shard->commit();
  const json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(names)}};
  files::write_file_atomically(folder / kIndex, index.dump(2) + "\n");
  remove_others(folder, kept);
}

State load_sharded_weights(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / kIndex, error)) return load_weights(folder / kWhole);
  const json index = read_index(folder / kIndex);
  std::map<std::string, State> files;
  State weights;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : "";
    LEVIN_CHECK(detail::is_plain_name(text), "checkpoint.corrupt",
                "{} names no file of the folder for {}", (folder / kIndex).string(),
                printable(name));
    if (!files.contains(text)) files[text] = load_weights(folder / text);
    LEVIN_CHECK(files[text].contains(name), "checkpoint.corrupt",
                "{} says that {} is in {}, which does not have it; write them again",
                (folder / kIndex).string(), printable(name), printable(text));
    weights.set(name, files[text].tensor(name));
  }
  return weights;
}

}  // namespace levin
