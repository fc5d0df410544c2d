#pragma once
// LoRA (Hu et al. 2021): adapters of low rank beside the frozen weights of a pretrained model. Add
// them between from_pretrained and training. Adapters are saved in the format of PEFT.
//
//   auto net = levin::models::from_pretrained("minilm", {.task = "text-classification"});
//   levin::lora::add(net, {.r = 16, .lora_alpha = 32});
//   ...                                              // train: only the adapter has gradients
//   levin::lora::save(*net, "adapter");              // PeftModel.from_pretrained reads it
//   net->save_pretrained("tuned", {.merge = true});  // a model without adapters

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/models/pretrained.h"

namespace levin {

class ExportedModule;

/// Options of a LoRA adapter, named as in PEFT's LoraConfig.
struct LoraOptions {
  int64_t r = 8;              ///< rank of the adapter matrices
  double lora_alpha = 8;      ///< the adapter's output is scaled by lora_alpha / r
  double lora_dropout = 0.0;  ///< dropout probability on the adapter's input
  /// Modules to adapt: suffixes of their names ("q_proj"), or "all-linear" for all linear layers
  /// except the last of the head. Empty: the default of the model family.
  std::vector<std::string> target_modules = {};
  bool use_rslora = false;  ///< scale by lora_alpha / sqrt(r) (Kalajdzievski 2023)
  bool use_dora = false;    ///< decompose weights into magnitude and direction (Liu et al. 2024)
  /// Ranks of single modules, by suffixes of names, which are regular expressions of Python. The
  /// first match wins, and replaces r.
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  /// Same for lora_alpha.
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  /// Suffixes of the names of modules that are trained as a whole and saved with the adapter. A
  /// head for labels or answers always is.
  std::vector<std::string> modules_to_save = {};
  /// Regular expression that the whole name of a module to adapt matches. It excludes
  /// target_modules, layers_to_transform and layers_pattern.
  std::string target_pattern;
  /// Suffixes of the names of modules that are not adapted.
  std::vector<std::string> exclude_modules = {};
  /// Regular expression that the whole name of a module that is not adapted matches.
  std::string exclude_pattern;
  /// Indices of the layers to adapt; empty: all layers.
  std::vector<int64_t> layers_to_transform = {};
  /// Names of the module lists that layers_to_transform counts in, such as "layers"; it needs
  /// layers_to_transform.
  std::vector<std::string> layers_pattern = {};
  /// Train an embedding in modules_to_save together with the head that is tied to it.
  bool ensure_weight_tying = false;
  /// PEFT's task type, which determines the head that is trained as a whole. Unset: from the
  /// model's task; empty: none.
  std::optional<std::string> task_type = {};
};

namespace lora {

/// Freezes the model and adds adapters, which do not change its outputs until they are trained.
/// Throws Error "models.lora.target" for a name that is no suffix of a module's name (the message
/// names the nearest), "models.lora.options" for numbers that are not valid and for modules_to_save
/// whose weights are tied to another module, and "models.lora.twice" if the model has an adapter
/// already.
LEVIN_API void add(models::Pretrained& net, const LoraOptions& options = {});
/// Same for a shared pointer.
inline void add(const std::shared_ptr<models::Pretrained>& net, const LoraOptions& options = {}) {
  add(*net, options);
}

/// Writes adapter_config.json and adapter_model.safetensors, which PEFT reads. Throws Error
/// "models.lora.none" if the model has no adapter, and "files.write".
LEVIN_API void save(const models::Pretrained& net, const std::filesystem::path& folder);
/// Adds the adapter of a folder that PEFT or save() wrote. As in PEFT, only some of the module
/// names in its config have to exist. Throws Error "models.missing", "models.lora.options" for a
/// key whose value levin does not support, and "models.lora.weights" for weights of another model.
/// A warning names keys that are unknown.
LEVIN_API void load(models::Pretrained& net, const std::filesystem::path& folder);

/// Merges the adapters into the weights of the model, for faster inference.
LEVIN_API void merge(models::Pretrained& net);
/// Undoes merge(); the weights are bit-identical to those before it.
LEVIN_API void unmerge(models::Pretrained& net);

/// Same as add() for the nn.Linear layers of an exported module, under their names in Python;
/// options.target_modules must not be empty. The saved file is the one that PEFT writes for the
/// Python module. PEFT's DoRA and tied modules are not supported here (Error
/// "models.lora.options"). Add the adapter before Accelerator::prepare or the Trainer.
LEVIN_API void add(ExportedModule& net, const LoraOptions& options);
/// Same as save() for an exported module.
LEVIN_API void save(const ExportedModule& net, const std::filesystem::path& folder);
/// Same as load() for an exported module.
LEVIN_API void load(ExportedModule& net, const std::filesystem::path& folder);
/// Same as merge() for an exported module.
LEVIN_API void merge(ExportedModule& net);
/// Same as unmerge() for an exported module.
LEVIN_API void unmerge(ExportedModule& net);

/// A scope in which a model has no adapter: adapters are disabled, and modules_to_save have the
/// values from before add(). PEFT's disable_adapter. Throws Error "models.lora.weights" if such a
/// module is sharded.
class LEVIN_API WithoutAdapter {
 public:
  /// Disables the adapter of this model, which has to outlive the scope.
  explicit WithoutAdapter(models::Pretrained& net);
  /// Enables the adapter again.
  ~WithoutAdapter();
  WithoutAdapter(const WithoutAdapter&) = delete;
  WithoutAdapter& operator=(const WithoutAdapter&) = delete;

 private:
  models::Pretrained& net_;
  std::vector<at::Tensor> trained_;  // in the order of lora_originals
};

}  // namespace lora
}  // namespace levin
