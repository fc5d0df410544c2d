#include "levin/checkpoint/checkpoint.h"

#define XXH_INLINE_ALL
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <fstream>
#include <sstream>
#include <system_error>

#include "levin/base/check.h"
#include "levin/checkpoint/state_json.h"
#include "levin/checkpoint/tensor_file.h"
#include "levin/files/atomic.h"
#include "levin/files/file_writer.h"

namespace levin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kTrainingJson = "training_state.json";
constexpr const char* kTrainingTensors = "training_state.safetensors";

std::map<std::string, at::Tensor> tensors_of(const State& weights) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, value] : weights.values()) tensors[name] = weights.tensor(name);
  return tensors;
}

State state_of(std::map<std::string, at::Tensor> tensors) {
  State state;
  for (auto& [name, tensor] : tensors) state.set(name, std::move(tensor));
  return state;
}

json to_json(const files::FileDigest& digest) {
  return {{"size", digest.size}, {"xxh3", fmt::format("{:016x}", digest.xxh3)}};
}

files::FileDigest write_text(const fs::path& file, const std::string& text) {
  files::FileWriter writer(file);
  writer.write(text);
  return writer.close();
}

std::string read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// A hash of the manifest's own content, so that a flipped bit shows there too.
std::string seal(const json& manifest) {
  const std::string text = manifest.dump();
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

[[noreturn]] void fail_corrupt(const fs::path& file, std::string_view reason) {
  LEVIN_FAIL("checkpoint.corrupt", "{}: {}; nothing was loaded, resume from another checkpoint",
             file.string(), reason);
}

json read_manifest(const fs::path& folder) {
  const fs::path file = folder / kManifest;
  LEVIN_CHECK(fs::is_directory(folder), "checkpoint.missing", "no checkpoint folder '{}'",
              folder.string());
  LEVIN_CHECK(fs::exists(file), "checkpoint.missing",
              "'{}' holds no {}, so it is no complete checkpoint of levin", folder.string(),
              kManifest);
  json manifest = json::parse(read_text(file), nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("seal") || !manifest["seal"].is_string()) {
    fail_corrupt(file, "it is no manifest");
  }
  const std::string sealed = manifest["seal"];
  manifest.erase("seal");
  if (sealed != seal(manifest)) fail_corrupt(file, "its content does not match its own checksum");
  const json format = manifest.value("format", json());
  if (format != kFormat) {
    fail_corrupt(file, fmt::format("format {} is of another version of levin, wanted {}",
                                   format.dump(), kFormat));
  }
  return manifest;
}

void check_name(const std::string& name) {
  const bool usable = !name.empty() && name.find('/') == std::string::npos;
  LEVIN_CHECK(usable && name + ".safetensors" != kTrainingTensors, "checkpoint.path",
              "got weights named '{}', wanted a file name other than training_state", name);
}

void verify(const fs::path& file, const json& wanted) {
  if (!fs::exists(file)) fail_corrupt(file, "the file is missing");
  const files::FileDigest digest = files::digest(file);
  if (digest.size != wanted.at("size").get<int64_t>()) {
    fail_corrupt(file, fmt::format("it has {} bytes, wanted {}", digest.size,
                                   wanted.at("size").get<int64_t>()));
  }
  if (to_json(digest) != wanted) {
    fail_corrupt(file, "its bytes are not those that were saved (checksum)");
  }
}

}  // namespace

void save_checkpoint(const fs::path& folder, const Checkpoint& checkpoint) {
  for (const auto& [name, weights] : checkpoint.weights) check_name(name);
  files::StagedDirectory staged(folder);
  json written = json::object();
  for (const auto& [name, weights] : checkpoint.weights) {
    const std::string file = name + ".safetensors";
    written[file] = to_json(write_tensors(staged.path() / file, tensors_of(weights)));
  }
  const StateJson training = state_to_json(checkpoint.training);
  written[kTrainingJson] = to_json(write_text(staged.path() / kTrainingJson, training.json));
  written[kTrainingTensors] =
      to_json(write_tensors(staged.path() / kTrainingTensors, training.tensors));
  json manifest = {{"format", kFormat}, {"files", std::move(written)}};
  manifest["seal"] = seal(manifest);
  write_text(staged.path() / kManifest, manifest.dump(1));
  staged.commit();
}

Checkpoint load_checkpoint(const fs::path& folder) {
  const json manifest = read_manifest(folder);
  Checkpoint checkpoint;
  for (const auto& [name, digest] : manifest.at("files").items()) verify(folder / name, digest);
  for (const auto& [name, digest] : manifest.at("files").items()) {
    const fs::path file = name;
    if (file.extension() == ".safetensors" && name != kTrainingTensors) {
      checkpoint.weights[file.stem().string()] = state_of(read_tensors(folder / file));
    }
  }
  const StateJson training{read_text(folder / kTrainingJson),
                           read_tensors(folder / kTrainingTensors)};
  checkpoint.training = state_from_json(training, (folder / kTrainingJson).string());
  return checkpoint;
}

State load_weights(const fs::path& path) {
  LEVIN_CHECK(fs::exists(path), "checkpoint.missing",
              "'{}' is not there; wanted a checkpoint's folder or a .safetensors file",
              path.string());
  if (!fs::is_directory(path)) return state_of(read_tensors(path));
  Checkpoint checkpoint = load_checkpoint(path);
  LEVIN_CHECK(checkpoint.weights.size() == 1, "checkpoint.weights",
              "'{}' holds the weights of {} models; give the path of one .safetensors file",
              path.string(), checkpoint.weights.size());
  return std::move(checkpoint.weights.begin()->second);
}

void save_weights(const fs::path& file, const State& weights) {
  // Beside its place first: the weights may lie in a map of the file that is replaced.
  const files::StagedDirectory staged(fs::path(file) += ".staged");
  const fs::path made = staged.path() / file.filename();
  write_tensors(made, tensors_of(weights));
  std::error_code error;
  fs::rename(made, file, error);
  LEVIN_CHECK(!error, "files.write", "cannot rename {} to {}: {}", made.string(), file.string(),
              error.message());
}

}  // namespace levin
