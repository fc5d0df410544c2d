#pragma once
// Pretrained: a model of a folder as transformers saves it, for a task; opened, trained, written
// back. Batches of token ids go in, logits and a loss come out; a Module's steps or a loop of one's
// own call it.
//
//   auto net = levin::models::from_pretrained("minilm", {.task = "text-classification", .num_labels = 20});
//   auto output = net->forward(batch);      // input_ids, attention_mask, labels
//   accelerator.backward(output.loss);
//   net->save_pretrained("tuned");

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/data/batch.h"
#include "levin/models/generate/options.h"
#include "levin/text/tokenizer.h"

// Config: a model's config.json, read by key; what nobody asks for is kept and written back.
// Between a folder and the body that is built from it; spellings of transformers 4 and 5 meet here.
//
//   const Config config = Config::from_folder("qwen3");
//   const int64_t width = config.integer("hidden_size", 4096);

namespace levin::models {

/// A value type. A key that is there with null counts as absent. Each function throws Error
/// "models.config", which names file and key, where what is there is of another type.
class LEVIN_API Config {
 public:
  /// Throws Error "models.missing" where the folder has no config.json, "models.config" where it is
  /// no JSON object.
  static Config from_folder(const std::filesystem::path& folder);
  static Config from_json(std::string_view text, std::string origin = "config.json");

  Config();
  ~Config();
  Config(const Config&);
  Config(Config&&) noexcept;
  Config& operator=(const Config&);
  Config& operator=(Config&&) noexcept;

  bool has(std::string_view key) const;
  /// Takes over what a JSON object has and this has not; null stays null.
  void fill(std::string_view defaults);
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise = {}) const;
  /// The same where it has to be above 0.
  int64_t positive(std::string_view key, std::optional<int64_t> otherwise = {}) const;
  double number(std::string_view key, std::optional<double> otherwise = {}) const;
  bool boolean(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key, const std::string& otherwise = "") const;
  /// Empty where the key is absent.
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  /// The same where the file may have one alone in place of a list.
  std::vector<int64_t> one_or_more(std::string_view key) const;
  std::vector<std::string> one_or_more_texts(std::string_view key) const;
  /// An object, whose errors name "key.inner"; an empty one where the key is absent.
  Config child(std::string_view key) const;

  std::vector<std::string> keys() const;
  /// The value of a key as JSON text; "null" where the key is absent.
  std::string json(std::string_view key) const;

  void set(std::string_view key, int64_t value);
  void set(std::string_view key, const std::string& value);
  void set(std::string_view key, const std::vector<std::string>& values);
  void set(std::string_view key, const std::vector<int64_t>& values);
  void set_number(std::string_view key, double value);
  void set_flag(std::string_view key, bool value);
  void erase(std::string_view key);
  /// Puts a value under another key, where it replaces what is there; nothing where it is absent.
  void rename(std::string_view key, std::string_view to);

  /// "model_type"; Error "models.config" where there is none.
  std::string model_type() const;
  /// "dtype", or "torch_dtype" as transformers 4 wrote it; empty where neither is there.
  std::string dtype() const;
  /// Row of the tokens' embedding that is "pad_token_id", which gets no gradient: below 0 it counts from the
  /// end, as torch.nn.Embedding's padding_idx; -1 where there is none.
  int64_t padding_row(int64_t rows) const;
  /// Labels of a classification head: "num_labels", or as many as "id2label" names; 2 as there.
  int64_t num_labels() const;
  /// Gives a head so many labels, named LABEL_0 and on, unless it has as many already.
  void set_num_labels(int64_t count);
  /// Those of its labels, by their numbers; LABEL_0 and on where nobody named them.
  std::vector<std::string> label_names() const;
  void set_label_names(const std::vector<std::string>& names);

  const std::string& origin() const { return origin_; }
  /// Indented by 2, as transformers writes it.
  std::string to_json() const;

 private:
  struct Tree;

  const Tree* find(std::string_view key) const;

  std::string origin_;
  std::unique_ptr<Tree> tree_;
};

}  // namespace levin::models

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

// SentenceEncoder: texts to vectors whose products say how alike they are, as sentence-
// transformers' SentenceTransformer.encode.
//
//   auto encoder = levin::models::SentenceEncoder::from_pretrained("minilm");
//   const at::Tensor vectors = encoder.encode(texts);              // [texts, 384]
//   const at::Tensor likeness = vectors.mm(vectors.t());

struct EncodeSentencesOptions {
  int64_t batch_size = 32;
  /// Called after each batch with how many texts are done.
  std::function<void(int64_t done)> progress = {};
};

class LEVIN_API SentenceEncoder {
 public:
  /// A folder of sentence-transformers, or any encoder's, whose tokens' mean is taken then. Texts are cut
  /// at "max_seq_length" of sentence_bert_config.json, or at what the model can read. The prompt that
  /// config_sentence_transformers.json names as default stands before each text, and vectors are cut at
  /// its "truncate_dim". Throws Error "models.config" and "models.sentence" for what these files ask for
  /// and levin does not have, and what models::from_pretrained and text::Tokenizer::from_pretrained throw.
  static SentenceEncoder from_pretrained(const std::filesystem::path& folder);

  /// float32 [texts, width] on the CPU, without gradients; texts of like length are encoded together.
  at::Tensor encode(std::span<const std::string> texts, const EncodeSentencesOptions& options = {});

  const std::shared_ptr<Pretrained>& model() const { return net_; }
  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  int64_t max_seq_length() const { return max_seq_length_; }

 private:
  SentenceEncoder(std::shared_ptr<Pretrained> net, text::Tokenizer tokenizer,
                  int64_t max_seq_length);

  std::shared_ptr<Pretrained> net_;
  text::Tokenizer tokenizer_;
  int64_t max_seq_length_;
  std::string prompt_;  // before each text
  int64_t width_ = 0;   // of a vector, where it is cut; 0: the model's
};

// to_batch: texts as the batch that a model takes.
//
//   const auto tokenizer = levin::text::Tokenizer::from_pretrained("minilm");
//   auto output = net->forward(levin::models::to_batch(tokenizer, {"a text", "another one"}));

/// input_ids, attention_mask and, where a text has two parts, token_type_ids: int64 [texts, longest].
/// Padded to the longest, on the side and with the token that the tokenizer's files name; cut where the
/// tokenizer is told to (set_truncation).
LEVIN_API Batch to_batch(const text::Tokenizer& tokenizer, std::span<const std::string> texts);
LEVIN_API Batch to_batch(const text::Tokenizer& tokenizer,
                         std::initializer_list<std::string> texts);
LEVIN_API Batch to_batch(const text::Tokenizer& tokenizer,
                         std::span<const text::Encoding> encodings);

/// input_ids and attention_mask, padded on the left: what Pretrained::generate writes on from.
LEVIN_API Batch to_prompts(const text::Tokenizer& tokenizer, std::span<const std::string> texts);
LEVIN_API Batch to_prompts(const text::Tokenizer& tokenizer,
                           std::initializer_list<std::string> texts);
LEVIN_API Batch to_prompts(const text::Tokenizer& tokenizer,
                           std::span<const text::Encoding> encodings);

}  // namespace levin::models
