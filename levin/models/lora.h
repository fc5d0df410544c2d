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
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/models/pretrained.h"

namespace levin {

/// PEFT's LoraConfig.
struct LoraOptions {
  int64_t r = 8;          ///< rank of the matrices
  double lora_alpha = 8;  ///< what the adapter adds is multiplied by lora_alpha / r
  double lora_dropout = 0.0;
  /// Ends of modules' names ("q_proj"), or "all-linear": all but the head's last. Empty: the family's.
  std::vector<std::string> target_modules = {};
  bool use_rslora = false;  ///< lora_alpha / sqrt(r)
  bool use_dora = false;
  /// Of modules whose names end so; they win over r and lora_alpha.
  std::map<std::string, int64_t> rank_pattern = {};
  std::map<std::string, double> alpha_pattern = {};
  /// Modules that are trained whole and saved with the adapter. A classification head always is.
  std::vector<std::string> modules_to_save = {};
};

namespace lora {

/// Freezes the model and adds adapters, which change nothing before they are trained. Throws Error
/// "models.lora.target" for a name that no linear layer of the model ends with, naming the nearest,
/// "models.lora.options" for numbers that cannot be, "models.lora.twice".
LEVIN_API void add(models::Pretrained& net, const LoraOptions& options = {});
inline void add(const std::shared_ptr<models::Pretrained>& net, const LoraOptions& options = {}) {
  add(*net, options);
}

/// adapter_config.json and adapter_model.safetensors. Throws Error "models.lora.none" where there is
/// no adapter, and "files.write".
LEVIN_API void save(const models::Pretrained& net, const std::filesystem::path& folder);
/// Adds the adapter of a folder that PEFT or save() wrote. Throws Error "models.missing",
/// "models.lora.options" for kinds that are not there, and "models.lora.weights" for one of another model.
LEVIN_API void load(models::Pretrained& net, const std::filesystem::path& folder);

/// The adapters go into the model's matrices, and come out again to the bit.
LEVIN_API void merge(models::Pretrained& net);
LEVIN_API void unmerge(models::Pretrained& net);

/// A scope in which the model is what it was before.
class LEVIN_API WithoutAdapter {
 public:
  explicit WithoutAdapter(models::Pretrained& net);
  ~WithoutAdapter();
  WithoutAdapter(const WithoutAdapter&) = delete;
  WithoutAdapter& operator=(const WithoutAdapter&) = delete;

 private:
  models::Pretrained& net_;
};

}  // namespace lora
}  // namespace levin
