#pragma once
// LoRA: adapts a pretrained model by small matrices beside its own, which stay as they are. Between
// from_pretrained and training; an adapter's folder is PEFT's.
//
//   auto net = levin::models::from_pretrained("minilm", {.task = "text-classification"});
//   levin::lora::add(net, {.r = 16, .lora_alpha = 32});
//   ...                                              // the optimizer gets what has gradients
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

/// PEFT's LoraConfig.
struct LoraOptions {
  int64_t r = 8;          ///< rank of the matrices
  double lora_alpha = 8;  ///< what the adapter adds is multiplied by lora_alpha / r
  double lora_dropout = 0.0;
  /// Ends of modules' names ("q_proj"), or "all-linear": all but the head's last. Empty: the family's.
  std::vector<std::string> target_modules = {};
  bool use_rslora = false;  ///< lora_alpha / sqrt(r)
  bool use_dora = false;
  /// Of modules whose names end so, as expressions of Python's re; the first wins, over r and lora_alpha too.
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  /// Ends of the names of modules that are trained whole and saved with the adapter. A head of labels or answers
  /// always is.
  std::vector<std::string> modules_to_save = {};
  /// In place of target_modules: an expression that the whole name matches.
  std::string target_pattern;
  /// Ends of names, and an expression of whole names, that are not adapted.
  std::vector<std::string> exclude_modules = {};
  std::string exclude_pattern;
  /// Numbers of the layers that are adapted; empty: all. layers_pattern names the lists that they count in.
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  /// An embedding in modules_to_save is trained together with the head that shares its matrix.
  bool ensure_weight_tying = false;
  /// PEFT's type of the task, which says what head is trained whole; unset: by the model's task; empty: none.
  std::optional<std::string> task_type = {};
};

namespace lora {

/// Freezes the model and adds adapters, which change nothing before they are trained. Throws Error
/// "models.lora.target" for a name that no module of the model ends with, naming the nearest,
/// "models.lora.options" for numbers that cannot be and for modules_to_save that share their matrix with
/// another module, "models.lora.twice".
LEVIN_API void add(models::Pretrained& net, const LoraOptions& options = {});
inline void add(const std::shared_ptr<models::Pretrained>& net, const LoraOptions& options = {}) {
  add(*net, options);
}

/// adapter_config.json and adapter_model.safetensors. Throws Error "models.lora.none" where there is
/// no adapter, and "files.write".
LEVIN_API void save(const models::Pretrained& net, const std::filesystem::path& folder);
/// Adds the adapter of a folder that PEFT or save() wrote. Of the names in its file some have to be there, as in
/// PEFT. Throws Error "models.missing", "models.lora.options" for a key whose value levin does not do, and
/// "models.lora.weights" for one of another model. A key that nobody knows is named in a warning.
LEVIN_API void load(models::Pretrained& net, const std::filesystem::path& folder);

/// The adapters go into the model's matrices, and come out again to the bit.
LEVIN_API void merge(models::Pretrained& net);
LEVIN_API void unmerge(models::Pretrained& net);

/// The same for nn.Linear layers of an exported module, by the names that they have in Python; target_modules has
/// to name some. The file is PEFT's for the Python module. What PEFT does with DoRA and tied modules is Error
/// "models.lora.options"; the adapter goes before Accelerator::prepare and the Trainer.
LEVIN_API void add(ExportedModule& net, const LoraOptions& options);
LEVIN_API void save(const ExportedModule& net, const std::filesystem::path& folder);
LEVIN_API void load(ExportedModule& net, const std::filesystem::path& folder);
LEVIN_API void merge(ExportedModule& net);
LEVIN_API void unmerge(ExportedModule& net);

/// A scope in which the model is what it was before: without adapters, and with the values that modules_to_save
/// had then. Throws Error "models.lora.weights" where such a module is divided over ranks.
class LEVIN_API WithoutAdapter {
 public:
  explicit WithoutAdapter(models::Pretrained& net);
  ~WithoutAdapter();
  WithoutAdapter(const WithoutAdapter&) = delete;
  WithoutAdapter& operator=(const WithoutAdapter&) = delete;

 private:
  models::Pretrained& net_;
  std::vector<at::Tensor> trained_;  // in the order of lora_originals
};

}  // namespace lora
}  // namespace levin
