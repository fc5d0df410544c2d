#include "levin/models/weights.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/files/checksum.h"
#include "levin/files/folder.h"
#include "levin/files/memory_map.h"
#include "levin/module/loading/casts.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;

std::string shortened(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i > 0 ? ", " : "") + printable(names[i]);
  if (names.size() > kShown) text += ", and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

/// Finds the parameter of the network that a tensor of a file belongs to.
class Names {
 public:
  Names(torch::nn::Module& root, const Family& family, const Placing& placing)
      : family_(family), placing_(placing), usual_(family.base_prefix + ".") {
    for (const auto& parameter : root.named_parameters())
      parameters_.emplace(parameter.key(), parameter.value());
    for (const std::string& name : placing.body) {
      const std::string inner = below_body(name);
      groups_.insert(inner.substr(0, inner.find('.')));
    }
  }

  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }

  /// Empty: the network has none for it.
  std::string of(const std::string& tensor) const {
    std::string name = tensor;
    for (const auto& [old, now] : family_.old_names) {
      if (name.ends_with(old)) name.replace(name.size() - old.size(), old.size(), now);
    }
    for (const std::string& each : {name, joined(placing_.base_prefix, below_body(name))}) {
      if (parameters_.contains(each)) return each;
    }
    return "";
  }

  bool is_ignored(const std::string& tensor) const {
    return std::ranges::any_of(family_.ignored,
                               [&](const std::string& end) { return tensor.ends_with(end); });
  }

  /// Returns whether a file's tensor belongs to the body. Tensors of a head may be left over.
  bool is_of_body(const std::string& tensor) const {
    const std::string inner = below_body(tensor);
    return groups_.contains(inner.substr(0, inner.find('.')));
  }

 private:
  /// The name without the prefix that it has here, or has in files of models with a head.
  std::string below_body(const std::string& name) const {
    const std::string here = placing_.base_prefix + ".";
    if (!placing_.base_prefix.empty() && name.starts_with(here)) return name.substr(here.size());
    return name.starts_with(usual_) ? name.substr(usual_.size()) : name;
  }

  const Family& family_;
  const Placing& placing_;
  std::string usual_;
  std::map<std::string, at::Tensor> parameters_;
  std::set<std::string> groups_;  // first parts of names within the body
};

/// Tensors that nothing was made of: those of other heads are named, those of the body are a mistake.
void check_superfluous(const std::vector<std::string>& names, const Names& known,
                       const std::string& folder) {
  std::vector<std::string> of_body;
  for (const std::string& name : names) {
    if (known.is_of_body(name)) of_body.push_back(name);
  }
  LEVIN_CHECK(of_body.empty(), "models.weights",
              "{} holds tensors that the model of its config.json does not have: {}; the weights "
              "and config.json belong to different models",
              folder, shortened(of_body));
  if (!names.empty()) {
    log::info("models: {} tensors of {} are not used by the model for this task: {}", names.size(),
              folder, shortened(names));
  }
}

bool are_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  return a.const_data_ptr() == b.const_data_ptr() || at::equal(a, b);
}

void move(State& weights, const std::string& from, const std::string& to) {
  const at::Tensor tensor = weights.tensor(from);
  weights.erase(from);
  weights.set(to, tensor);
}

/// If one of the two is missing, it gets a copy of the other.
void give_both(State& weights, const std::string& a, const std::string& b) {
  const bool has_a = weights.contains(a), has_b = weights.contains(b);
  if (has_a && !has_b) weights.set(b, weights.tensor(a).clone());
  if (has_b && !has_a) weights.set(a, weights.tensor(b).clone());
}

}  // namespace

std::vector<std::string> place_weights(torch::nn::Module& root, const Family& family,
                                       const Placing& placing, const State& weights) {
  const Names names(root, family, placing);
  std::map<std::string, std::string> placed;  // parameter, tensor of the file
  std::set<const void*> used;
  std::vector<std::string> left;
  detail::Casts casts;
  for (const auto& [tensor, value] : weights.values()) {
    if (names.is_ignored(tensor)) continue;
    const std::string name = names.of(tensor);
    if (name.empty()) {
      left.push_back(tensor);
      continue;
    }
    const at::Tensor& given = weights.tensor(tensor);
    at::Tensor parameter = names.parameters().at(name);
    if (given.sizes() != parameter.sizes()) {
      if (placing.may_redraw && !placing.body.contains(name)) continue;
      LEVIN_FAIL("models.weights",
                 "{}: {} has sizes {} in the file, but {} by config.json; the weights and "
                 "config.json belong to different models",
                 placing.folder, printable(tensor), c10::str(given.sizes()),
                 c10::str(parameter.sizes()));
    }
    LEVIN_CHECK(given.is_floating_point(), "models.quantized",
                "{}: {} has dtype {}, but levin reads floating-point weights only; use a model "
                "that is not quantized",
                placing.folder, printable(tensor), c10::toString(given.scalar_type()));
    const auto [first, is_new] = placed.emplace(name, tensor);
    LEVIN_CHECK(is_new, "models.weights",
                "{}: got two tensors, {} and {}, for the parameter {}; remove one", placing.folder,
                printable(first->second), printable(tensor), name);
    casts.note(tensor, given.scalar_type(), placing.dtype);
    parameter.set_data(given.to(placing.dtype));
    used.insert(given.const_data_ptr());
  }
  // Matrices that share their memory in the file are named once here.
  std::erase_if(left, [&](const std::string& tensor) {
    return used.contains(weights.tensor(tensor).const_data_ptr());
  });
  check_superfluous(left, names, placing.folder);
  const std::string what = "models: " + placing.folder;
  if (placing.is_dtype_given) {
    casts.tell(what);
  } else {
    casts.warn(what);
  }
  std::vector<std::string> missing, drawn;
  for (const auto& [name, parameter] : names.parameters()) {
    if (!placed.contains(name)) (placing.body.contains(name) ? missing : drawn).push_back(name);
  }
  LEVIN_CHECK(missing.empty(), "models.weights",
              "{} has no weights for {}; the folder is incomplete, or its config.json belongs to "
              "another model",
              placing.folder, shortened(missing));
  return drawn;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

State read_weights(const fs::path& folder) {
  LEVIN_CHECK(
      holds_weights(folder), "models.missing",
      "{} has neither model.safetensors nor pytorch_model.bin, nor an index of several files",
      folder.string());
  return load_sharded_weights(folder);
}

std::string digest_of_weights(const fs::path& folder) {
  const bool are_tensors =
      is_there(folder / "model.safetensors") || is_there(folder / "model.safetensors.index.json");
  const std::string start = are_tensors ? "model" : "pytorch_model";
  std::set<fs::path> files;
  for (const fs::path& file : files::entries_of(folder)) {
    const std::string name = file.filename().string();
    const bool is_weights = name.ends_with(are_tensors ? ".safetensors" : ".bin");
    if (name.starts_with(start) && is_weights) files.insert(file);
  }
  uint64_t digest = 0;
  for (const fs::path& file : files) digest = files::xxh3(files::MemoryMap(file).bytes(), digest);
  return fmt::format("{:016x}", digest);
}

void settle_tied_head(Config& config, State& weights, const Family& family,
                      const std::string& folder) {
  const TiedNames& names = family.tied;
  if (names.matrix.empty() || !config.boolean("tie_word_embeddings", false)) return;
  std::string embedding = joined(family.base_prefix, names.embedding);
  if (!weights.contains(embedding) && weights.contains(names.embedding))
    embedding = names.embedding;
  if (weights.contains(names.matrix)) {
    if (!weights.contains(embedding)) {
      move(weights, names.matrix, embedding);
    } else if (are_equal(weights.tensor(embedding), weights.tensor(names.matrix))) {
      weights.erase(names.matrix);
    } else {
      log::warn(
          "models: {} has tie_word_embeddings = true, but {} holds different values for {} and {}; "
          "the head is not tied, as in transformers, and save_pretrained writes "
          "tie_word_embeddings = false",
          config.origin(), folder, names.matrix, embedding);
      config.set_flag("tie_word_embeddings", false);
      if (!names.bias.empty()) give_both(weights, names.bias, names.second);
      return;
    }
  }
  if (names.bias.empty() || !weights.contains(names.second)) return;
  if (!weights.contains(names.bias)) {
    move(weights, names.second, names.bias);
    return;
  }
  LEVIN_CHECK(are_equal(weights.tensor(names.bias), weights.tensor(names.second)), "models.weights",
              "{} holds different values for {} and {}, but tie_word_embeddings = true ties them; "
              "remove the one that was not trained",
              folder, names.bias, names.second);
  weights.erase(names.second);
}

}  // namespace levin::models
