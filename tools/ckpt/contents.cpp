#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "levin/module/parameters.h"
#include "tools/ckpt/ckpt.h"

namespace levin::tools {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNameBytes = size_t{1} << 26;  // of a long key on the way to many values
constexpr int64_t kMostRepeated = int64_t{1} << 30;

/// A tree as two lists, by the path of their dicts: "optimizer.state.0.exp_avg".
class Gathered {
 public:
  explicit Gathered(const fs::path& file) : file_(file) {}

  void gather(const State& tree, const std::string& path) {
    for (const auto& [key, value] : tree.values()) {
      const std::string name = path.empty() ? key : path + "." + key;
      name_bytes_ += name.size();
      LEVIN_CHECK(name_bytes_ <= kMostNameBytes, "tools.ckpt",
                  "the names in '{}' take more than {}, because one key is too long",
                  file_.string(), bytes_text(kMostNameBytes));
      if (const auto* child = std::get_if<State>(&value)) {
        gather(*child, name);
      } else if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
        tensors.set(name, *tensor);
      } else {
        std::visit([&](const auto& own) { scalars.set(name, own); }, value);
      }
    }
  }

  State tensors, scalars;

 private:
  const fs::path& file_;
  size_t name_bytes_ = 0;
};

/// The bytes of the storages of a state's tensors, each counted once.
int64_t storage_bytes(const State& weights) {
  std::map<const void*, int64_t> storages;
  for (const auto& [name, value] : weights.values()) {
    const at::Tensor& tensor = std::get<at::Tensor>(value);
    if (!tensor.has_storage()) continue;
    const c10::Storage& storage = tensor.storage();
    storages[storage.unsafeGetStorageImpl()] = static_cast<int64_t>(storage.nbytes());
  }
  int64_t bytes = 0;
  for (const auto& [storage, own] : storages) bytes += own;
  return bytes;
}

/// A file of PyTorch may repeat a storage, in one tensor (stride 0) or in many. Files of Hugging Face
/// hold every element.
void check_repeated(const State& weights, const fs::path& path) {
  const int64_t stored = storage_bytes(weights);
  int64_t left = stored + kMostRepeated;
  for (const auto& [name, value] : weights.values()) {
    const at::Tensor& tensor = std::get<at::Tensor>(value);
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    LEVIN_CHECK(bytes <= left, "tools.ckpt",
                "the tensors of '{}' repeat stored elements ({}): with '{}' of sizes {} they would "
                "take more than {}; save them with .clone() in the program that wrote the file",
                path.string(), bytes_text(stored), printable(name), c10::str(tensor.sizes()),
                bytes_text(stored + kMostRepeated));
    left -= bytes;
  }
}

CheckpointContents of_torch(const fs::path& path) {
  const bool is_folder = fs::is_directory(path);
  CheckpointContents contents = {.kind = is_folder ? "folder of torch.distributed.checkpoint"
                                                   : "file of torch.save"};
  State weights;
  try {
    Gathered gathered(path);
    gathered.gather(is_folder ? load_distributed_checkpoint(path) : load_torch_file(path), "");
    weights = std::move(gathered.tensors);
    contents.training = std::move(gathered.scalars);
  } catch (const Error& error) {
    // With classes of their own beside the weights, as Lightning's files.
    if (is_folder || error.id() != "checkpoint.torch") throw;
    weights = load_torch_weights(path);
  }
  contents.weights["model"] = std::move(weights);
  return contents;
}

/// Names that weights of a checkpoint of levin have beside those in its files (Accelerator::state_dict).
std::map<std::string, std::string> tied_in(const State& training) {
  std::map<std::string, std::string> tied;
  if (!training.contains("tied") || !training.child("tied").contains("0")) return tied;
  const State& names = training.child("tied").child("0");
  for (const auto& [other, first] : names.values()) tied[other] = names.text(other);
  return tied;
}

/// The weights to convert; everything else in PyTorch's files is left out. If a checkpoint records tied weights,
/// they get all of their names on request.
State weights_of(const fs::path& from, bool with_all_names) {
  if (is_torch_checkpoint(from)) return load_torch_weights(from);
  CheckpointContents contents = read_contents(from);
  LEVIN_CHECK(contents.weights.size() == 1, "tools.ckpt",
              "'{}' holds the weights of {} models; give the path of one .safetensors file",
              from.string(), contents.weights.size());
  State weights = std::move(contents.weights.begin()->second);
  if (!with_all_names) return weights;
  return with_tied_names(std::move(weights), tied_in(contents.training));
}

}  // namespace

void check_expansion(const CheckpointContents& contents, const fs::path& path) {
  for (const auto& [model, weights] : contents.weights) check_repeated(weights, path);
}

CheckpointContents read_contents(const fs::path& path) {
  std::error_code unknown;
  if (is_torch_checkpoint(path)) return of_torch(path);
  if (fs::exists(path / "manifest.json", unknown)) {
    Checkpoint checkpoint = load_checkpoint(path);
    return {"levin checkpoint", std::move(checkpoint.weights), std::move(checkpoint.training)};
  }
  CheckpointContents contents;
  const bool is_folder = fs::is_directory(path, unknown);
  if (is_folder && is_folder_of_weights(path)) {
    contents.kind = "folder of weights";
    contents.weights["model"] = load_sharded_weights(path);
    return contents;
  }
  LEVIN_CHECK(
      !is_folder, "tools.ckpt",
      "'{}' is no checkpoint: it has neither manifest.json, model.safetensors, pytorch_model.bin "
      "(or an index of either) nor .metadata",
      path.string());
  contents.kind = "safetensors file";
  contents.weights["model"] = load_weights(path);
  return contents;
}

std::string verified(const fs::path& path) {
  std::error_code unknown;
  const bool is_file = fs::is_regular_file(path, unknown);
  const bool is_foreign = is_file || is_torch_checkpoint(path) || is_folder_of_weights(path);
  if (!is_foreign || fs::exists(path / "manifest.json", unknown)) {
    CheckpointReader reader(path);
    reader.check_all();
    return fmt::format("good, {} checked", bytes_text(reader.bytes_read()));
  }
  const CheckpointContents contents = read_contents(path);
  size_t tensors = 0;
  std::string repeated;
  for (const auto& [model, weights] : contents.weights) {
    tensors += weights.values().size();
    for (const auto& [name, value] : weights.values()) {
      const at::Tensor& tensor = std::get<at::Tensor>(value);
      if (!repeated.empty() || tensor.nbytes() <= tensor.storage().nbytes()) continue;
      repeated = fmt::format("; '{}' repeats {} as {}", printable(name),
                             bytes_text(static_cast<int64_t>(tensor.storage().nbytes())),
                             bytes_text(static_cast<int64_t>(tensor.nbytes())));
    }
  }
  return fmt::format("complete, {} tensors{}; a {} has no checksums", tensors, repeated,
                     contents.kind);
}

void convert(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
  constexpr std::array<std::pair<std::string_view, at::ScalarType>, 4> kTypes = {
      {{"float32", at::kFloat},
       {"float16", at::kHalf},
       {"bfloat16", at::kBFloat16},
       {"float64", at::kDouble}}};
  std::error_code unknown;
  LEVIN_CHECK(!fs::exists(fs::symlink_status(to, unknown)), "tools.ckpt",
              "'{}' exists; name a new path", to.string());
  const bool is_of_torch = is_torch_file_name(to);
  State weights = weights_of(from, /*with_all_names=*/is_of_torch);
  // In PyTorch's form what repeats elements still does, as long as none is cast.
  if (!is_of_torch || !options.dtype.empty()) check_repeated(weights, from);
  if (!options.dtype.empty()) {
    const auto* type =
        std::ranges::find(kTypes, options.dtype, &decltype(kTypes)::value_type::first);
    LEVIN_CHECK(type != kTypes.end(), "tools.ckpt",
                "got --dtype '{}', wanted float32, float16, bfloat16 or float64", options.dtype);
    weights = cast_floating(weights, type->second);
  }
  if (is_of_torch || to.extension() == ".safetensors") return save_weights(to, weights);
  save_sharded_weights(to, weights, options.max_shard_bytes);
}

}  // namespace levin::tools
