#pragma once
// Rows: a file of texts, chats, pairs or tagged words as the batches that a model is fine-tuned on.
// Stands between a file on disk (JSON lines, CSV) and the Trainer: a DataModule.
//
//   auto tokenizer = levin::text::Tokenizer::from_pretrained("minilm");
//   auto data = levin::text::rows("sections.jsonl", tokenizer, {.packing = true, .max_length = 64});
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

/// Names and defaults as in transformers' TrainingArguments and TRL's SFTConfig, where they have one.
///
/// What a row is follows from its columns, or from `task`:
///
/// | task     | columns                                                                          |
/// |----------|----------------------------------------------------------------------------------|
/// | lm       | text                                                                             |
/// | mlm      | text; never found, only named                                                    |
/// | sft      | prompt and completion (texts or messages), or messages; text too where it is named |
/// | dpo      | chosen and rejected (texts or messages), prompt (else what both begin with)      |
/// | classify | text (sentence), text_pair (sentence2), label: a text, a whole number (a class), |
/// |          | a number (regression) or a list of numbers (one a class)                         |
/// | tag      | tokens and tags (ner_tags, labels): lists of one length                          |
/// | embed    | anchor (query, sentence1), positive (answer, sentence2), negative, negative_1 .. |
/// |          | or a list negatives; score: what the cosine of the first two should be           |
///
/// and what a batch holds from the task. B rows, T tokens, int64 where nothing else stands; -100 is what
/// does not count. A field's dim 0 is always the row.
///
/// | task          | fields                                                                          |
/// |---------------|---------------------------------------------------------------------------------|
/// | lm, sft       | input_ids, attention_mask, labels [B, T]: the ids themselves, not shifted       |
/// | mlm           | the same, labels -100 but where a token was drawn                               |
/// | classify      | input_ids, attention_mask, of pairs token_type_ids [B, T]; labels [B], float [B] |
/// |               | or float [B, classes]                                                           |
/// | tag           | input_ids, attention_mask, labels [B, T]: at the first token of each word       |
/// | dpo           | input_ids, attention_mask, labels [B, 2, T]: 0 chosen, 1 rejected; -100 prompt  |
/// | embed         | input_ids, attention_mask [B, 2 + negatives, T]; of scores labels float [B]     |
/// | with packing  | input_ids, document, labels [B, max_length], of pairs token_type_ids: several   |
/// |               | rows of the file in one. document counts them from 0 within a row, -1 padding;  |
/// |               | labels of classify stand at each document's first token. sample_mask [B] where  |
/// |               | the last batch was filled up. Not for dpo, embed and numbers as labels.         |
struct RowsOptions {
  // Of the rows
  std::string task;  ///< lm, mlm, sft, dpo, classify, tag or embed; empty: found from the columns
  /// Names of columns in place of those above: {"text=description", "label=section"}.
  std::vector<std::string> columns = {};
  std::string validation_file;  ///< for val_dataloader; its labels are those of the first file
  /// Of classes and tags, in the order of their numbers; empty: the texts that come, sorted.
  std::vector<std::string> label_names = {};
  /// Of classify, what labels are: single_label_classification (classes), regression (values) or
  /// multi_label_classification (lists of numbers). Empty: texts and whole numbers are classes, numbers with
  /// a point values, and a file with both of these is an error.
  std::string problem_type;

  // Of a row's tokens
  bool packing = false;  ///< several rows in one, without a shape that changes
  /// bfd: best fit, longest first, what is longer than max_length is cut; bfd_split: is divided.
  std::string packing_strategy = "bfd";
  /// Unset: 1024 for lm, sft and dpo, for others what the tokenizer's files say, for mlm 1024 at most.
  std::optional<int64_t> max_length = {};
  std::string truncation_mode = "keep_start";  ///< or keep_end; error: a longer row is one
  /// The loss counts completions alone; unset: where a row has a prompt and a completion.
  std::optional<bool> completion_only_loss = {};
  /// The loss counts what the assistant says alone, by {% generation %} of the chat template.
  bool assistant_only_loss = false;
  std::string chat_template;  ///< in Jinja, or a name; empty: the tokenizer's
  /// Put behind a text or completion that does not end with it; unset: the tokenizer's; empty: none.
  std::optional<std::string> eos_token = {};
  double mlm_probability = 0.15;     ///< of a token to be drawn, for mlm
  double mask_replace_prob = 0.8;    ///< of a drawn token to become the mask
  double random_replace_prob = 0.1;  ///< of a drawn token to become any other

  // Of batches
  int64_t batch_size = 8;                       ///< rows of a batch on this rank
  std::optional<int64_t> eval_batch_size = {};  ///< unset: batch_size
  /// random; sequential; or group_by_length: batches of rows of about one length.
  std::string train_sampling_strategy = "random";
  int64_t pad_to_multiple_of = 1;  ///< a batch is padded to its longest row, and up to that
  bool pad_to_max_length = false;  ///< to max_length always: one shape
  bool drop_last = false;          ///< leave out a last batch of training that is shorter
  bool pad_last_batch = false;     ///< fill it up; always with packing, but with drop_last
  /// Of order and masks; unset: current_seed(), which --seed sets.
  std::optional<int64_t> seed = {};

  // Performance
  int64_t num_workers = 1;  ///< threads that put batches together
  int64_t num_threads = 0;  ///< that tokenize; 0: as many as there are cores
  /// Folder of tokenized files; empty: LEVIN_ROWS_CACHE, $XDG_CACHE_HOME/levin/rows or
  /// ~/.cache/levin/rows, the first that is set.
  std::string cache_dir;

  LEVIN_API void fields(FieldVisitor& field);
};

/// What became of a file's rows.
struct RowsReport {
  int64_t rows = 0;     ///< of the file
  int64_t samples = 0;  ///< that the loader counts: rows of tokens, packed or not
  int64_t tokens = 0;   ///< without padding
  /// What the loss counts: tokens that are predicted (lm, sft, dpo), tokens that may be drawn (mlm), tags,
  /// labels (classify) or rows (embed).
  int64_t counted = 0;
  int64_t truncated = 0;    ///< rows that were cut
  int64_t dropped = 0;      ///< rows that had no token, or none that counts
  int64_t idle = 0;         ///< rows that were kept and of which nothing counts, as TRL packs them
  int64_t longest = 0;      ///< sample
  bool from_cache = false;  ///< nothing was tokenized
};

/// The file is tokenized once, by one process of a machine and its threads, into a file of cache_dir,
/// which all of them map. That file belongs to the contents of the text file, to the tokenizer and to the
/// options that change tokens: where one of them is another, or the file is damaged, it is made anew.
/// The others wait. It happens in prepare_data(), or in the first function below that needs it; then one line
/// of the log tells what became of the rows, also of a file that was made before.
class LEVIN_API Rows : public DataModule {
 public:
  ~Rows() override;

  void prepare_data() override;
  void setup(std::string_view stage) override;
  std::optional<DataLoader> train_dataloader() override;
  std::optional<DataLoader> val_dataloader() override;  ///< of validation_file

  /// lm, mlm, sft, dpo, classify, tag or embed. Looks at the first row only.
  const std::string& task();
  /// Of classes or tags, by their number; empty where labels are numbers, or there are none.
  const std::vector<std::string>& label_names();
  /// Of classes or tags; 1 for regression; the length of lists; 0 without labels.
  int64_t num_labels();
  /// Of labels, and of scores (embed): single_label_classification, regression or
  /// multi_label_classification; empty without labels.
  std::string problem_type();
  /// Tokens of the longest sample there may be: max_length.
  int64_t max_length();
  const RowsReport& report();
  /// Of validation_file; throws Error "text.rows.options" where there is none.
  const RowsReport& validation_report();

  /// What the loaders read, for one of your own; draw() has the masks of mlm.
  DatasetPtr train_dataset();
  DatasetPtr validation_dataset();  ///< null without a validation_file
  const RowsOptions& options() const;

  struct Parts;  ///< for levin's own sources
  explicit Rows(std::unique_ptr<Parts> parts);

 private:
  std::unique_ptr<Parts> parts_;
};

/// file: *.jsonl, *.ndjson, *.json of one object a line, or *.csv, *.tsv with a header. The tokenizer has
/// to outlive what is returned, and not to change.
///
/// Throws Error "text.rows.options" and what data::open_records throws. When it is made: "data.json_lines",
/// "data.csv", "data.utf8", "data.records.field" and "text.rows.row" with file and line of a row that
/// cannot be used, "text.rows.columns" where no task has these columns, "text.rows.label" for a label
/// that is none of the names, "text.rows.length" (truncation_mode = "error"), "text.rows.generation" for
/// a template without {% generation %}, "text.rows.tokenizer" where it lacks a token that is needed,
/// "text.rows.empty" where no row is left, or none of which something counts.
LEVIN_API std::shared_ptr<Rows> rows(const std::filesystem::path& file, const Tokenizer& tokenizer,
                                     RowsOptions options = {});
std::shared_ptr<Rows> rows(const std::filesystem::path&, Tokenizer&&, RowsOptions = {}) = delete;

/// The tasks that an option of RowsOptions has an effect for, by the option's name; empty: all tasks. Given for
/// another task it is Error "text.rows.options".
LEVIN_API std::vector<std::string> tasks_of_rows_option(std::string_view option);

/// How many labels of a batch count in a mean over tokens, int64 []: those that are not -100. Where a
/// model predicts each token from the one before (shifted: lm, sft, dpo) a document's first does not count.
/// For Module::set_loss_weight, so that accumulated batches and ranks give the mean over all tokens.
LEVIN_API at::Tensor counted_labels(const Batch& batch, bool shifted);

}  // namespace levin::text
