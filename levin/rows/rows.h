#pragma once
// Rows: a DataModule that turns a file of texts, chats, pairs or tagged words (JSON lines or CSV)
// into batches for fine-tuning.
//
//   auto tokenizer = levin::text::Tokenizer::from_pretrained("minilm");
//   auto data = levin::text::rows("sections.jsonl", tokenizer,
//                                 {.packing = true, .max_length = 64});
//   data->task();                         // "classify": the rows have text and label
//   trainer.fit(levin::models::fine_tune(net), data);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/data/module.h"
#include "levin/text/tokenizer.h"

namespace levin::text {

/// Options of rows(). Names and defaults are those of transformers' TrainingArguments and TRL's
/// SFTConfig if these have the option.
///
/// The columns of a row determine its task, unless `task` is set:
///
/// | task     | columns                                                                       |
/// |----------|-------------------------------------------------------------------------------|
/// | lm       | text                                                                          |
/// | mlm      | text; only if task is set                                                     |
/// | sft      | prompt and completion (strings or messages), or messages; also text if task   |
/// |          | is set                                                                        |
/// | dpo      | chosen and rejected (strings or messages), and prompt (default: the common    |
/// |          | beginning of both)                                                            |
/// | classify | text (or sentence) and label: a string, an integer (a class), a number        |
/// |          | (regression) or a list of numbers (one per class); optional: text_pair (or    |
/// |          | sentence2)                                                                    |
/// | tag      | tokens and tags (or ner_tags, labels): two lists of the same length           |
/// | embed    | anchor (or query, sentence1) and positive (or answer, sentence2); optional:   |
/// |          | negative, negative_1 .. or a list negatives; score: target cosine similarity  |
/// |          | of anchor and positive                                                        |
///
/// The task determines the fields of a batch. B is the number of rows and T the number of tokens.
/// The dtype is int64 unless another one is given. Labels of -100 do not count in the loss. Dim 0
/// of a field is always the row.
///
/// | task         | fields                                                                    |
/// |--------------|---------------------------------------------------------------------------|
/// | lm, sft      | input_ids, attention_mask, labels [B, T]: the ids themselves, not shifted |
/// | mlm          | same; labels are -100 except at tokens selected for prediction            |
/// | classify     | input_ids, attention_mask, for pairs token_type_ids [B, T]; labels [B],   |
/// |              | float32 [B] or float32 [B, classes]                                       |
/// | tag          | input_ids, attention_mask, labels [B, T]: at the first token of each word |
/// | dpo          | input_ids, attention_mask, labels [B, 2, T]: 0 chosen, 1 rejected; -100   |
/// |              | in the prompt                                                             |
/// | embed        | input_ids, attention_mask [B, 2 + negatives, T]; if there are scores:     |
/// |              | labels, float32 [B]                                                       |
/// | with packing | input_ids, document, labels and, for pairs, token_type_ids                |
/// |              | [B, max_length]. A row of the batch holds several rows of the file, which |
/// |              | are numbered from 0 in `document`; -1 is padding. labels of classify are  |
/// |              | at the first token of each document. sample_mask [B] is false in rows     |
/// |              | that fill up the last batch. Not available for dpo, embed and numbers.    |
struct RowsOptions {
  // Rows
  std::string task;  ///< lm, mlm, sft, dpo, classify, tag or embed; empty: from the columns
  /// The file's names for the columns above: {"text=description", "label=section"}.
  std::vector<std::string> columns = {};
  /// File for val_dataloader; its labels are numbered as in the first file.
  std::string validation_file;
  /// Names of classes or tags, in the order of their ids; empty: the names in the file, sorted.
  std::vector<std::string> label_names = {};
  /// Type of labels for classify: single_label_classification (classes), regression (values) or
  /// multi_label_classification (lists of numbers). If empty, strings and integers are classes and
  /// numbers with a decimal point are values; a file with both kinds of numbers is an error.
  std::string problem_type;

  // Tokens of a row
  /// Pack several rows into one of max_length tokens, so that all batches have the same shape.
  bool packing = false;
  /// Packing algorithm. bfd: best fit decreasing; rows longer than max_length are truncated.
  /// bfd_split: rows longer than max_length are split.
  std::string packing_strategy = "bfd";
  /// Maximum number of tokens in a row. Unset: 1024 for lm, sft and dpo; for other tasks the
  /// model's maximum from the tokenizer's files, and for mlm at most 1024.
  std::optional<int64_t> max_length = {};
  std::string truncation_mode =
      "keep_start";  ///< keep_start, keep_end, or error (if a row is longer)
  /// Compute the loss on completions only; unset: true for rows with a prompt and a completion.
  std::optional<bool> completion_only_loss = {};
  /// Compute the loss on assistant messages only, found by {% generation %} of the chat template.
  bool assistant_only_loss = false;
  std::string chat_template;  ///< chat template in Jinja, or a name; empty: the tokenizer's
  /// Token appended to a text or completion that does not end with it; unset: the tokenizer's;
  /// empty: none.
  std::optional<std::string> eos_token = {};
  double mlm_probability = 0.15;   ///< mlm: probability that a token is selected for prediction
  double mask_replace_prob = 0.8;  ///< mlm: probability that a selected token becomes the mask
  /// mlm: probability that a selected token becomes a random token.
  double random_replace_prob = 0.1;

  // Batches
  int64_t batch_size = 8;                       ///< rows per batch on this rank
  std::optional<int64_t> eval_batch_size = {};  ///< rows per validation batch; unset: batch_size
  /// Order of training rows: random, sequential, or group_by_length (rows of similar length share a
  /// batch).
  std::string train_sampling_strategy = "random";
  /// A batch is padded to its longest row, rounded up to a multiple of this number of tokens.
  int64_t pad_to_multiple_of = 1;
  /// Pad every batch to max_length, so that all batches have the same shape.
  bool pad_to_max_length = false;
  bool drop_last = false;  ///< leave out a shorter last batch of training
  /// Fill up a shorter last batch. With packing it is always filled up, except with drop_last.
  bool pad_last_batch = false;
  /// Seed of order and masks; unset: current_seed(), which --seed sets.
  std::optional<int64_t> seed = {};

  // Performance
  int64_t num_workers = 1;  ///< threads that collate batches
  int64_t num_threads = 0;  ///< threads that tokenize; 0: number of cores
  /// Folder of tokenized files; empty: the first of LEVIN_ROWS_CACHE, $XDG_CACHE_HOME/levin/rows
  /// and ~/.cache/levin/rows that is set.
  std::string cache_dir;

  /// Visits all options, for the command line and TOML files.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Counts of the rows of a file.
struct RowsReport {
  int64_t rows = 0;     ///< rows of the file
  int64_t samples = 0;  ///< samples of the loader: tokenized rows, packed or not
  int64_t tokens = 0;   ///< tokens, without padding
  /// Items that count in the loss: predicted tokens (lm, sft, dpo), tokens that may be selected
  /// (mlm), tags (tag), labels (classify) or rows (embed).
  int64_t counted = 0;
  int64_t truncated = 0;    ///< rows that were truncated
  int64_t dropped = 0;      ///< rows left out: they have no token, or none in the loss
  int64_t idle = 0;         ///< with packing: rows without a token in the loss, kept as in TRL
  int64_t longest = 0;      ///< tokens of the longest sample
  bool from_cache = false;  ///< the file was tokenized by an earlier run
};

/// The data module of a file, made by rows(). One process on each machine tokenizes the file, with
/// several threads, into a cache file in cache_dir, while the others wait. All processes memory-map
/// the cache file. It depends on the contents of the text file, the tokenizer and the options that
/// change tokens; if one of these differs, or the cache file is damaged, the file is tokenized
/// again. Tokenizing happens in prepare_data(), or in the first function below that needs the
/// tokens. Then one log line reports the counts of the rows, also if the file came from the cache.
class LEVIN_API Rows : public DataModule {
 public:
  ~Rows() override;

  /// Tokenizes the files.
  void prepare_data() override;
  /// Opens the tokenized files, and tokenizes them if needed.
  void setup(std::string_view stage) override;
  /// Returns the loader of the file.
  std::optional<DataLoader> train_dataloader() override;
  /// Returns the loader of validation_file; nullopt if there is none.
  std::optional<DataLoader> val_dataloader() override;

  /// Task: lm, mlm, sft, dpo, classify, tag or embed. Reads the first row only.
  const std::string& task();
  /// Names of classes or tags, by id; empty if labels are numbers or if there are none.
  const std::vector<std::string>& label_names();
  /// Number of classes or tags; 1 for regression; the length of the lists for lists of numbers; 0
  /// without labels and for embed.
  int64_t num_labels();
  /// Type of labels, and of scores (embed): single_label_classification, regression or
  /// multi_label_classification; empty without labels.
  std::string problem_type();
  /// Maximum number of tokens in a sample: max_length, or the longest sample if there is no limit.
  int64_t max_length();
  /// Counts of the file's rows.
  const RowsReport& report();
  /// Counts of the rows of validation_file. Throws Error "text.rows.options" if there is none.
  const RowsReport& validation_report();

  /// The dataset that the training loader reads, for a loader of your own. Its draw() selects the
  /// masked tokens of mlm.
  DatasetPtr train_dataset();
  DatasetPtr validation_dataset();  ///< dataset of validation_file; null if there is none
  /// Options that rows() got.
  const RowsOptions& options() const;

 private:
  friend LEVIN_API std::shared_ptr<Rows> rows(const std::filesystem::path& file,
                                              const Tokenizer& tokenizer, RowsOptions options);
  struct Parts;
  explicit Rows(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

/// Opens a file of rows: *.jsonl, *.ndjson or *.json with one object per line, or *.csv or *.tsv
/// with a header. The tokenizer has to outlive the result and must not change.
///
/// Throws Error "text.rows.options" and the errors of data::open_records(). Tokenizing throws, with
/// file and line of a row that cannot be used, "data.json_lines", "data.csv", "data.utf8",
/// "data.records.field" and "text.rows.row". It also throws "text.rows.columns" if no task has
/// these columns, "text.rows.label" for a label that does not fit the others or is not one of the
/// names, "text.rows.length" for a row that is too long (truncation_mode = "error"),
/// "text.rows.generation" for a chat template without {% generation %}, "text.rows.tokenizer" if
/// the tokenizer lacks a token that is needed, and "text.rows.empty" if no row is left, or no row
/// counts in the loss.
LEVIN_API std::shared_ptr<Rows> rows(const std::filesystem::path& file, const Tokenizer& tokenizer,
                                     RowsOptions options = {});
std::shared_ptr<Rows> rows(const std::filesystem::path&, Tokenizer&&, RowsOptions = {}) = delete;

/// Returns the tasks in which an option of RowsOptions has an effect, given the option's name;
/// empty if the option has an effect in all tasks. Setting it for another task is Error
/// "text.rows.options".
LEVIN_API std::vector<std::string> tasks_of_rows_option(std::string_view option);

/// Returns the number of labels of a batch that count in a mean over tokens (labels other than
/// -100), int64 []. With `shifted` (lm, sft, dpo) a model predicts each token from the token before
/// it, so the first token of each document does not count. Pass it to Module::set_loss_weight; then
/// gradient accumulation and data parallelism give the mean over all tokens.
LEVIN_API at::Tensor counted_labels(const Batch& batch, bool shifted);

}  // namespace levin::text
