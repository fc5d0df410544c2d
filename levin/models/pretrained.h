#pragma once
// Pretrained: a model of a folder as transformers saves it, for a task; opened, trained, written back.
// Batches of token ids go in, logits and a loss come out; a Module's steps or a loop of one's own call it.
//
//   auto net = levin::models::from_pretrained("minilm", {.task = "text-classification", .num_labels = 20});
//   auto output = net->forward(batch);      // input_ids, attention_mask, labels
//   accelerator.backward(output.loss);
//   net->save_pretrained("tuned");

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/models/config.h"
#include "levin/models/generate/options.h"

namespace levin {
class Batch;
struct LoraOptions;
}  // namespace levin

namespace levin::models {

struct PretrainedOptions {
  /// feature-extraction, text-generation, fill-mask, text-classification, token-classification,
  /// question-answering or sentence-similarity. Empty: sentence-similarity for a folder of
  /// sentence-transformers, else what "architectures" of the config says, else feature-extraction.
  std::string task;
  std::optional<int64_t> num_labels = {};  ///< of a classification head; unset: the config's
  /// Of its labels, in the order of their numbers, which num_labels then follows; empty: the config's.
  std::vector<std::string> label_names = {};
  /// Of the weights: float32, bfloat16, float16; auto: the config's, or the file's.
  std::string dtype = "auto";
  /// What a block would keep for backward is computed once more there (gradient checkpointing).
  bool activation_checkpointing = false;
};

struct SavePretrainedOptions {
  int64_t max_shard_bytes = 5'000'000'000;  ///< of one file
  bool merge = false;                       ///< a model without adapters; this one stays as it is
};

struct ForwardOptions {
  /// false: with labels the loss alone is made of hidden vectors, a part of the logits at a time where there
  /// are many (losses/chunked_nll.h), and there are no logits.
  bool logits = true;
};

/// What a model gives for a batch; what the task has not is undefined.
struct Output {
  at::Tensor loss;       ///< float32 scalar, where the batch has labels; 0 where none counts
  at::Tensor count;      ///< int64 scalar: how many labels the loss is the mean of
  at::Tensor logits;     ///< [B, T, vocabulary], [B, num_labels], [B, T, num_labels] or [B, T, 2]
  at::Tensor hidden;     ///< [B, T, width]: of the last block, normed
  at::Tensor pooled;     ///< [B, width]: of BERT's pooler, for feature-extraction
  at::Tensor embedding;  ///< float32 [B, width]: sentence-similarity
};

/// A module whose parameters have the names of transformers' files. Each block is a unit of the sharded
/// strategies (wrap).
class LEVIN_API Pretrained : public torch::nn::Module {
 public:
  ~Pretrained() override;

  /// Fields, each [B, T]: input_ids (int64); attention_mask, 0 where a token is padding; token_type_ids;
  /// position_ids; document, the number of the document that a token of a packed row is of (below 0:
  /// padding), which see each other only within one; and labels, or start_positions and end_positions
  /// (int64 [B]). Throws Error "models.input", "models.length", "models.labels", "models.padding", "models.packing".
  Output forward(const Batch& batch, const ForwardOptions& options = {});

  /// Writes on from prompts: a batch with input_ids and, where they are padded on the left,
  /// attention_mask (models::to_prompts), or input_ids alone, int64 [B, T]. As transformers' generate:
  /// greedy or by sampling, as options and generation_config.json say. Without gradients, in evaluation
  /// mode; adapters count. Throws Error "models.generate.task" for a model that writes no text,
  /// "models.generate.padding" for padding on the right, "models.generate.length",
  /// "models.generate.options", "models.generate.tokenizer", "models.generate.config", "models.input",
  /// "models.length".
  Generated generate(const Batch& prompts, const GenerateOptions& options = {});
  Generated generate(const at::Tensor& input_ids, const GenerateOptions& options = {});

  /// Writes config.json and model.safetensors (in several files where it is larger than
  /// max_shard_bytes), and copies tokenizer, chat template and generation settings of the folder that
  /// the model came from. transformers opens it. Of a model with an adapter the adapter is written
  /// (lora::save), or with merge the model that both make. Parameters have to be whole: under fsdp see
  /// WholeScope. Throws Error "files.write".
  void save_pretrained(const std::filesystem::path& folder,
                       const SavePretrainedOptions& options = {}) const;

  const Config& config() const;
  /// generation_config.json, or what transformers makes of a config.json alone.
  const Config& generation_config() const;
  /// What of these is set becomes what generate does where nobody says, and save_pretrained writes it.
  void set_generation_defaults(const GenerateOptions& options);
  std::string task() const;
  /// Parameters that the folder had no weights for, and that were drawn: those of a new head.
  const std::vector<std::string>& drawn() const;
  /// Names of modules that LoRA adapts where nobody says.
  const std::vector<std::string>& lora_targets() const;

  bool has_adapter() const;
  const LoraOptions& adapter() const;           ///< where it has one
  const std::filesystem::path& folder() const;  ///< that it came from; empty: none

  struct Parts;  ///< for levin's own sources
  Parts& parts() { return *parts_; }
  explicit Pretrained(std::unique_ptr<Parts> parts);

 private:
  std::unique_ptr<Parts> parts_;
};

/// Opens a folder with config.json and model.safetensors or pytorch_model.bin, in one file or several. Its
/// parameters lie in the files' map and are copied where they are written; those of another dtype are
/// copied. In training mode, as any module of LibTorch: call eval() to use it only.
///
/// Throws Error "models.missing" for a file that is not there, "models.model_type", "models.task",
/// "models.config", "models.rotary", "models.quantized", and "models.weights" where weights and config
/// do not go together: a tensor of the body that is missing, superfluous or of other sizes. A head
/// that the folder has not, or not of num_labels, is drawn anew and named in a warning, and so is an
/// adapter that lies beside the model: lora::load takes it up.
LEVIN_API std::shared_ptr<Pretrained> from_pretrained(const std::filesystem::path& folder,
                                                      const PretrainedOptions& options = {});

/// The same network with random weights, of a config alone (a folder's config.json, or its text).
LEVIN_API std::shared_ptr<Pretrained> from_config(Config config,
                                                  const PretrainedOptions& options = {});

}  // namespace levin::models
