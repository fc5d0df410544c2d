#pragma once
// Pretrained: a model that transformers saved in a folder, with a head for a task. It is loaded,
// trained and saved in the same format. A batch of token ids goes in, logits and a loss come out.
//
//   auto net = levin::models::from_pretrained("minilm",
//                                             {.task = "text-classification", .num_labels = 20});
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

// Config: the config.json of a model, read by key, as transformers.PretrainedConfig. Keys that
// nobody reads are kept and written back. Spellings of transformers 4 and 5 are both accepted.
//
//   const Config config = Config::from_folder("qwen3");
//   const int64_t width = config.integer("hidden_size", 4096);

namespace levin::models {

/// The keys and values of a config.json. Config is a value type. A key whose value is null counts
/// as absent. Functions that read a key throw Error "models.config", which names file and key, if
/// its value has another type. A function without a default throws it too if the key is absent.
class LEVIN_API Config {
 public:
  /// Reads config.json of a folder. Throws Error "models.missing" if there is none, and
  /// "models.config" if it is not a JSON object.
  static Config from_folder(const std::filesystem::path& folder);
  /// Parses the text of a config.json; `origin` names it in errors. Throws Error "models.config" if
  /// it is not a JSON object.
  static Config from_json(std::string_view text, std::string origin = "config.json");

  /// Creates a config without keys.
  Config();
  ~Config();
  /// Copies the config.
  Config(const Config&);
  /// Moves the config.
  Config(Config&&) noexcept;
  /// Copies the config.
  Config& operator=(const Config&);
  /// Moves the config.
  Config& operator=(Config&&) noexcept;

  /// Returns whether the key is there and not null.
  bool has(std::string_view key) const;
  /// Adds the keys of a JSON object that are not there yet. A key that is null stays null.
  void fill(std::string_view defaults);
  /// Value of a key as an integer; `otherwise` if it is absent.
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise = {}) const;
  /// Same, but a value of 0 or below throws Error "models.config".
  int64_t positive(std::string_view key, std::optional<int64_t> otherwise = {}) const;
  /// Value of a key as a number; `otherwise` if it is absent.
  double number(std::string_view key, std::optional<double> otherwise = {}) const;
  /// Value of a key as a boolean; `otherwise` if it is absent.
  bool boolean(std::string_view key, bool otherwise) const;
  /// Value of a key as a string; `otherwise` if it is absent.
  std::string text(std::string_view key, const std::string& otherwise = "") const;
  /// Value of a key as a list of strings; empty if it is absent.
  std::vector<std::string> texts(std::string_view key) const;
  /// Value of a key as a list of integers (booleans count as 0 and 1); empty if it is absent.
  std::vector<int64_t> integers(std::string_view key) const;
  /// Same as integers(), but the file may have a single integer instead of a list.
  std::vector<int64_t> one_or_more(std::string_view key) const;
  /// Same as texts(), but the file may have a single string instead of a list.
  std::vector<std::string> one_or_more_texts(std::string_view key) const;
  /// Value of a key as an object, whose errors name "key.inner"; an empty one if it is absent.
  Config child(std::string_view key) const;

  /// All keys, in the order of the file, including keys whose value is null.
  std::vector<std::string> keys() const;
  /// Value of a key as JSON text; "null" if it is absent.
  std::string json(std::string_view key) const;

  /// Sets a key to an integer.
  void set(std::string_view key, int64_t value);
  /// Sets a key to a string.
  void set(std::string_view key, const std::string& value);
  /// Sets a key to a list of strings.
  void set(std::string_view key, const std::vector<std::string>& values);
  /// Sets a key to a list of integers.
  void set(std::string_view key, const std::vector<int64_t>& values);
  /// Sets a key to a floating-point number.
  void set_number(std::string_view key, double value);
  /// Sets a key to a boolean.
  void set_flag(std::string_view key, bool value);
  /// Removes a key.
  void erase(std::string_view key);
  /// Moves a value to another key and replaces the value there. It has no effect if the key is
  /// absent.
  void rename(std::string_view key, std::string_view to);

  /// Value of "model_type". Throws Error "models.config" if it is absent.
  std::string model_type() const;
  /// Value of "dtype", or of "torch_dtype" (transformers 4); empty if both are absent.
  std::string dtype() const;
  /// Row of the token embedding that "pad_token_id" names, which gets no gradient, or -1 if there
  /// is none. A negative id counts from the end, as padding_idx of torch.nn.Embedding. `rows` is
  /// the number of rows of the embedding.
  int64_t padding_row(int64_t rows) const;
  /// Number of labels of a classification head: the number of names in "id2label", or "num_labels",
  /// or 2 as in transformers.
  int64_t num_labels() const;
  /// Sets the number of labels of a head and names them LABEL_0, LABEL_1, ... It has no effect if
  /// the number is the same already. Throws Error "models.num_labels" if it is below 1.
  void set_num_labels(int64_t count);
  /// Names of the labels, by id; LABEL_0, LABEL_1, ... if the file does not name them.
  std::vector<std::string> label_names() const;
  /// Sets the names of the labels, in the order of their ids, and with them their number.
  void set_label_names(const std::vector<std::string>& names);

  /// Name of the file for errors.
  const std::string& origin() const { return origin_; }
  /// JSON text, indented by 2 as transformers writes it.
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

/// Options of from_pretrained() and from_config().
struct PretrainedOptions {
  /// Task, which determines the head: feature-extraction, text-generation, fill-mask,
  /// text-classification, token-classification, question-answering or sentence-similarity. If
  /// empty, it is sentence-similarity for a folder of sentence-transformers, else the task of
  /// "architectures" in the config, else feature-extraction.
  std::string task;
  std::optional<int64_t> num_labels = {};  ///< labels of a classification head; unset: the config's
  /// Names of these labels, in the order of their ids; they determine num_labels too. Empty: the
  /// config's.
  std::vector<std::string> label_names = {};
  /// Dtype of the weights: float32, bfloat16 or float16; auto: the config's, or the file's.
  std::string dtype = "auto";
  /// Recompute the activations of each block in backward instead of keeping them (gradient
  /// checkpointing).
  bool activation_checkpointing = false;
};

/// Options of Pretrained::save_pretrained().
struct SavePretrainedOptions {
  int64_t max_shard_bytes = 5'000'000'000;  ///< maximum bytes of one weights file
  /// Merge the adapter into the saved model, which then has none. The model in memory does not
  /// change.
  bool merge = false;
};

/// Options of Pretrained::forward().
struct ForwardOptions {
  /// With false, a batch with labels gives only the loss, and no logits. If the logits would be
  /// large, the loss is computed from the hidden states, a chunk of the logits at a time
  /// (losses/chunked_nll.h).
  bool logits = true;
};

/// Outputs of a model for a batch. A tensor that the task does not have is undefined.
struct Output {
  at::Tensor loss;       ///< float32 scalar if the batch has labels; 0 if no label counts
  at::Tensor count;      ///< int64 scalar: number of labels that the loss is the mean of
  at::Tensor logits;     ///< [B, T, vocabulary], [B, num_labels], [B, T, num_labels] or [B, T, 2]
  at::Tensor hidden;     ///< [B, T, width]: hidden states of the last block, after the final norm
  at::Tensor pooled;     ///< [B, width]: output of BERT's pooler (feature-extraction)
  at::Tensor embedding;  ///< float32 [B, width]: sentence embedding (sentence-similarity)
};

struct PretrainedParts;

/// A pretrained model with a head, as the AutoModelFor... classes of transformers. Its parameters
/// have the names of transformers' files. Each block is a unit of the sharded strategies (wrap).
class LEVIN_API Pretrained : public torch::nn::Module {
 public:
  ~Pretrained() override;

  /// Computes the outputs for a batch. Its fields are, each [B, T]: input_ids (int64);
  /// attention_mask, 0 for padding; token_type_ids; position_ids; document, the number of the
  /// document of each token in a packed row (below 0: padding), where tokens attend only within
  /// their document; and labels. For question-answering it has start_positions and end_positions
  /// (int64 [B]) instead of labels. All but input_ids are optional. Throws Error "models.input",
  /// "models.length", "models.labels", "models.padding" and "models.packing".
  Output forward(const Batch& batch, const ForwardOptions& options = {});

  /// Generates text from prompts, as generate() of transformers: greedy or by sampling, as options
  /// and generation_config.json say. `prompts` has input_ids and, if they are padded on the left,
  /// attention_mask (models::to_prompts). It runs without gradients, in evaluation mode, and with
  /// the adapter if there is one. Throws Error "models.generate.task" unless the model is a causal
  /// language model, "models.generate.padding" for padding on the right, "models.generate.length",
  /// "models.generate.options", "models.generate.tokenizer", "models.generate.config",
  /// "models.input" and "models.length".
  Generated generate(const Batch& prompts, const GenerateOptions& options = {});
  /// Same for prompts without padding, int64 [B, T].
  Generated generate(const at::Tensor& input_ids, const GenerateOptions& options = {});

  /// Saves the model in the format of transformers: config.json and model.safetensors (in several
  /// files if it is larger than max_shard_bytes). It copies the tokenizer, the chat template and
  /// the generation settings from the folder that the model was loaded from. For a model with an
  /// adapter only the adapter is saved (lora::save), or with `merge` the merged model. Parameters
  /// must not be sharded: under fsdp see WholeScope. Throws Error "files.write".
  void save_pretrained(const std::filesystem::path& folder,
                       const SavePretrainedOptions& options = {}) const;

  /// Config of the model.
  const Config& config() const;
  /// Contents of generation_config.json, or what transformers derives from config.json if there is
  /// none.
  const Config& generation_config() const;
  /// Makes the options that are set the defaults of generate(). save_pretrained() saves them.
  void set_generation_defaults(const GenerateOptions& options);
  /// Task of the model (see PretrainedOptions::task).
  std::string task() const;
  /// Names of parameters that the folder had no weights for, such as those of a new head. They were
  /// initialized at random.
  const std::vector<std::string>& drawn() const;
  /// Names of the modules that LoRA adapts by default.
  const std::vector<std::string>& lora_targets() const;

  /// Returns whether the model has a LoRA adapter.
  bool has_adapter() const;
  /// Options of the adapter. Call it only if there is one.
  const LoraOptions& adapter() const;
  const std::filesystem::path& folder() const;  ///< folder it was loaded from; empty: none

 private:
  friend PretrainedParts& parts_of(Pretrained& net);
  friend std::shared_ptr<Pretrained> make_pretrained(std::unique_ptr<PretrainedParts> parts);
  explicit Pretrained(std::unique_ptr<PretrainedParts> parts);

  std::unique_ptr<PretrainedParts> parts_;
};

/// Loads a model from a folder with config.json and model.safetensors or pytorch_model.bin, in one
/// file or several. Parameters lie in the memory map of the files and are copied when they are
/// written to; parameters that are converted to another dtype are copied at once. The model is in
/// training mode, as any module of LibTorch: call eval() for inference.
///
/// Throws Error "models.missing" for a file that does not exist, "models.model_type",
/// "models.task", "models.config", "models.rotary", "models.quantized", "models.dtype",
/// "models.num_labels", and "models.weights" if weights and config do not match: a tensor of the
/// body that is missing, unexpected or of other sizes. A head that the folder does not have, or
/// that has another number of labels than num_labels, is initialized at random, with a warning that
/// names it. An adapter in the folder is not loaded, with a warning; lora::load loads it.
LEVIN_API std::shared_ptr<Pretrained> from_pretrained(const std::filesystem::path& folder,
                                                      const PretrainedOptions& options = {});

/// Creates a model with random weights from a config: config.json of a folder, or its text.
LEVIN_API std::shared_ptr<Pretrained> from_config(Config config,
                                                  const PretrainedOptions& options = {});

// SentenceEncoder: computes sentence embeddings of texts, as SentenceTransformer.encode of
// sentence-transformers.
//
//   auto encoder = levin::models::SentenceEncoder::from_pretrained("minilm");
//   const at::Tensor vectors = encoder.encode(texts);              // [texts, 384]
//   const at::Tensor similarity = vectors.mm(vectors.t());

/// Options of SentenceEncoder::encode().
struct EncodeSentencesOptions {
  int64_t batch_size = 32;  ///< texts per batch
  /// Called after each batch with the number of texts done.
  std::function<void(int64_t done)> progress = {};
};

/// A model for sentence embeddings with its tokenizer.
class LEVIN_API SentenceEncoder {
 public:
  /// Loads a folder of sentence-transformers, or any other encoder, whose tokens are then averaged.
  /// Texts are truncated at "max_seq_length" of sentence_bert_config.json, or at the model's
  /// maximum. The default prompt of config_sentence_transformers.json is put before each text, and
  /// embeddings are cut to its "truncate_dim". The model is in evaluation mode. Throws Error
  /// "models.config" and "models.sentence" for settings in these files that levin does not support,
  /// and the errors of models::from_pretrained() and text::Tokenizer::from_pretrained().
  static SentenceEncoder from_pretrained(const std::filesystem::path& folder);

  /// Returns the embeddings, float32 [texts, width] on the CPU, without gradients. Texts of similar
  /// length are encoded together. Throws Error "models.sentence" if batch_size is below 1.
  at::Tensor encode(std::span<const std::string> texts, const EncodeSentencesOptions& options = {});

  /// The model.
  const std::shared_ptr<Pretrained>& model() const { return net_; }
  /// The tokenizer.
  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  /// Maximum number of tokens in a text; longer texts are truncated.
  int64_t max_seq_length() const { return max_seq_length_; }

 private:
  SentenceEncoder(std::shared_ptr<Pretrained> net, text::Tokenizer tokenizer,
                  int64_t max_seq_length);

  std::shared_ptr<Pretrained> net_;
  text::Tokenizer tokenizer_;
  int64_t max_seq_length_;
  std::string prompt_;  // put before each text
  int64_t width_ = 0;   // width that embeddings are cut to; 0: not cut
};

// to_batch, to_prompts: tokenize texts and pad them to a batch for a model, as a tokenizer of
// transformers does when it is called with padding = True.
//
//   const auto tokenizer = levin::text::Tokenizer::from_pretrained("minilm");
//   auto output = net->forward(levin::models::to_batch(tokenizer, {"a text", "another one"}));

/// Returns input_ids, attention_mask and, if a text has two parts, token_type_ids: int64 [texts,
/// longest]. It pads to the longest text, on the side and with the token that the tokenizer's files
/// name. It truncates only if the tokenizer does (Tokenizer::set_truncation). Throws Error
/// "text.padding" if the tokenizer has no pad token.
LEVIN_API Batch to_batch(const text::Tokenizer& tokenizer, std::span<const std::string> texts);
/// Same for a list of texts.
LEVIN_API Batch to_batch(const text::Tokenizer& tokenizer,
                         std::initializer_list<std::string> texts);
/// Same for texts that are encoded already.
LEVIN_API Batch to_batch(const text::Tokenizer& tokenizer,
                         std::span<const text::Encoding> encodings);

/// Returns input_ids and attention_mask padded on the left, for Pretrained::generate(). A tokenizer
/// without a pad token pads with its end token.
LEVIN_API Batch to_prompts(const text::Tokenizer& tokenizer, std::span<const std::string> texts);
/// Same for a list of texts.
LEVIN_API Batch to_prompts(const text::Tokenizer& tokenizer,
                           std::initializer_list<std::string> texts);
/// Same for texts that are encoded already.
LEVIN_API Batch to_prompts(const text::Tokenizer& tokenizer,
                           std::span<const text::Encoding> encodings);

}  // namespace levin::models
