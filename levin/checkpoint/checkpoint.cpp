#include "levin/checkpoint/checkpoint.h"

#include <array>
#include <span>
#include <system_error>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/reading/regular_file.h"
#include "levin/checkpoint/manifest_impl.h"
#include "levin/checkpoint/tensor_file.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "levin/checkpoint/torch/write_torch_file.h"
#include "levin/files/atomic.h"
#include "levin/module/parameters.h"

namespace levin {
namespace {

namespace fs = std::filesystem;

State state_of(std::map<std::string, at::Tensor> tensors) {
  State state;
  for (auto& [name, tensor] : tensors) state.set(name, std::move(tensor));
  return state;
}

/// Returns whether the folder holds files that its manifest does not list.
bool holds_others(const fs::path& folder, const detail::Manifest& manifest) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool is_own = name == detail::kManifestName || manifest.files.contains(name);
    if (!is_own || fs::is_directory(at->symlink_status(error))) return true;
  }
  return static_cast<bool>(error);
}

/// A kind of file of weights that levin does not read, by its first bytes.
struct ForeignKind {
  size_t at;
  std::string_view bytes;
  std::string_view name;
};

constexpr std::array<ForeignKind, 5> kKinds = {{
    {0, "GGUF", "a GGUF file (llama.cpp)"},
    {0, "\x89HDF", "an HDF5 file (Keras)"},
    {0, "\x93NUMPY", "an array of NumPy"},
    {0, "\x1f\x8b", "compressed by gzip"},
    {257, "ustar", "a tar archive (also of torch.save before PyTorch 0.1.10)"},
}};

/// "a GGUF file (llama.cpp)"; empty for a file of no such kind.
std::string_view foreign_kind(const std::filesystem::path& file) {
  std::string first(512, '\0'), ignored;
  if (const auto opened = posix::open_regular(file, ignored)) {
    posix::read_some(opened->file, std::as_writable_bytes(std::span(first)));
  }
  for (const ForeignKind& kind : kKinds) {
    if (std::string_view(first).substr(kind.at, kind.bytes.size()) == kind.bytes) return kind.name;
  }
  return file.extension() == ".onnx" ? "a graph of ONNX" : "";
}

}  // namespace

Checkpoint load_checkpoint(const fs::path& folder) {
  CheckpointReader reader(folder);
  reader.check_all();
  Checkpoint checkpoint;
  for (const std::string& model : reader.models()) {
    checkpoint.weights[model] = reader.weights(model);
  }
  checkpoint.training = reader.training();
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
  for (const auto& [name, listed] : manifest.files) {
    const fs::path file = folder / name;
    if (!fs::is_directory(fs::symlink_status(file, error))) fs::remove(file, error);
  }
}

State load_weights(const fs::path& path) {
  std::error_code error;
  LEVIN_CHECK(fs::exists(path, error), "checkpoint.missing",
              "'{}' does not exist; wanted a checkpoint's folder, a .safetensors file or a file of "
              "torch.save",
              path.string());
  if (is_torch_checkpoint(path)) return load_torch_weights(path);
  if (!fs::is_directory(path, error)) {
    const std::string_view kind = foreign_kind(path);
    LEVIN_CHECK(kind.empty(), "checkpoint.weights",
                "'{}' is {}, which levin does not read; write its tensors as safetensors or with "
                "torch.save",
                path.string(), kind);
    return state_of(read_tensors(path));
  }
  if (is_folder_of_weights(path)) return load_sharded_weights(path);
  CheckpointReader reader(path);
  const std::vector<std::string> models = reader.models();
  LEVIN_CHECK(models.size() == 1, "checkpoint.weights",
              "'{}' holds the weights of {} models; give the path of one .safetensors file",
              path.string(), models.size());
  return reader.weights(models.front());
}

void save_weights(const fs::path& file, const State& weights) {
  // Beside its place first: the weights may lie in a map of the file that is replaced.
  files::StagedFile staged(file);
  if (is_torch_file_name(file)) {
    detail::write_torch_file(staged.path(), weights);
  } else {
    write_tensors(staged.path(), weights);
  }
  staged.commit();
}

void save_weights(const fs::path& file, const torch::nn::Module& module) {
  State state = module_state(module);
  if (is_torch_file_name(file)) state = with_tied_names(std::move(state), tied_names(module));
  save_weights(file, state);
}

}  // namespace levin
