#include "levin/checkpoint/checkpoint.h"

#include <system_error>

#include "levin/base/check.h"
#include "levin/checkpoint/manifest_impl.h"
#include "levin/checkpoint/state_json.h"
#include "levin/checkpoint/tensor_file.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "levin/files/atomic.h"
#include "levin/files/file_writer.h"
#include "levin/files/read_file.h"

namespace levin {
namespace {

namespace fs = std::filesystem;
using detail::kTrainingJson;
using detail::kTrainingTensors;

State state_of(std::map<std::string, at::Tensor> tensors) {
  State state;
  for (auto& [name, tensor] : tensors) state.set(name, std::move(tensor));
  return state;
}

files::FileDigest write_text(const fs::path& file, const std::string& text) {
  files::FileWriter writer(file);
  writer.write(text);
  return writer.close();
}

void check_name(const std::string& name) {
  LEVIN_CHECK(detail::is_plain_name(name) && name + ".safetensors" != kTrainingTensors,
              "checkpoint.path",
              "got weights named '{}', wanted a file name other than training_state", name);
}

void verify(const fs::path& file, const files::FileDigest& wanted) {
  std::error_code error;
  const fs::file_status there = fs::symlink_status(file, error);
  if (!fs::exists(there)) detail::fail_corrupt(file, "the file is missing");
  if (!fs::is_regular_file(there)) detail::fail_corrupt(file, "it is a link or no file");
  const files::FileDigest digest = files::digest(file);
  if (digest.size != wanted.size) {
    detail::fail_corrupt(file, fmt::format("it has {} bytes, wanted {}", digest.size, wanted.size));
  }
  if (digest != wanted) {
    detail::fail_corrupt(file, "its bytes are not those that were saved (checksum)");
  }
}

/// What stands in a folder beside what its manifest lists.
bool holds_others(const fs::path& folder, const detail::Manifest& manifest) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool is_own = name == detail::kManifestName || manifest.contains(name);
    if (!is_own || fs::is_directory(at->symlink_status(error))) return true;
  }
  return static_cast<bool>(error);
}

}  // namespace

void save_checkpoint(const fs::path& folder, const Checkpoint& checkpoint,
                     const SaveCheckpointOptions& options) {
  for (const auto& [name, weights] : checkpoint.weights) check_name(name);
  files::StagedDirectory staged(folder, options.replace ? is_checkpoint : files::MayReplace());
  detail::Manifest written;
  for (const auto& [name, weights] : checkpoint.weights) {
    const std::string file = name + ".safetensors";
    written[file] = write_tensors(staged.path() / file, weights);
  }
  const StateJson training = state_to_json(checkpoint.training);
  written[kTrainingJson] = write_text(staged.path() / kTrainingJson, training.json);
  written[kTrainingTensors] = write_tensors(staged.path() / kTrainingTensors, training.tensors);
  detail::write_manifest(staged.path(), written);
  staged.commit();
}

Checkpoint load_checkpoint(const fs::path& folder) {
  const detail::Manifest manifest = detail::read_manifest(folder);
  Checkpoint checkpoint;
  for (const auto& [name, digest] : manifest) verify(folder / name, digest);
  for (const auto& [name, digest] : manifest) {
    if (name == kTrainingJson || name == kTrainingTensors) continue;
    const fs::path file = folder / name;
    checkpoint.weights[file.stem().string()] = state_of(read_tensors(file));
  }
  const StateJson training{files::read_file(folder / kTrainingJson),
                           read_tensors(folder / kTrainingTensors)};
  checkpoint.training = state_from_json(training, (folder / kTrainingJson).string());
  return checkpoint;
}

bool is_checkpoint(const fs::path& folder) {
  try {
    return !holds_others(folder, detail::read_manifest(folder));
  } catch (const Error&) {
    return false;
  }
}

void remove_checkpoint(const fs::path& folder) {
  std::error_code error;
  LEVIN_CHECK(!fs::is_symlink(fs::symlink_status(folder, error)), "checkpoint.missing",
              "'{}' is a link; name the checkpoint's own folder", folder.string());
  const detail::Manifest manifest = detail::read_manifest(folder);
  if (!holds_others(folder, manifest)) return files::remove_folder(folder);
  fs::remove(folder / detail::kManifestName, error);  // first: what is left is no checkpoint
  for (const auto& [name, digest] : manifest) {
    const fs::path file = folder / name;
    if (!fs::is_directory(fs::symlink_status(file, error))) fs::remove(file, error);
  }
}

State load_weights(const fs::path& path) {
  std::error_code error;
  LEVIN_CHECK(fs::exists(path, error), "checkpoint.missing",
              "'{}' is not there; wanted a checkpoint's folder, a .safetensors file or what torch.save "
              "wrote",
              path.string());
  if (is_torch_checkpoint(path)) return load_torch_weights(path);
  if (!fs::is_directory(path, error)) return state_of(read_tensors(path));
  Checkpoint checkpoint = load_checkpoint(path);
  LEVIN_CHECK(checkpoint.weights.size() == 1, "checkpoint.weights",
              "'{}' holds the weights of {} models; give the path of one .safetensors file",
              path.string(), checkpoint.weights.size());
  return std::move(checkpoint.weights.begin()->second);
}

void save_weights(const fs::path& file, const State& weights) {
  // Beside its place first: the weights may lie in a map of the file that is replaced.
  files::StagedFile staged(file);
  write_tensors(staged.path(), weights);
  staged.commit();
}

}  // namespace levin
