#include <map>

#include "levin/text/rows/rows.h"

namespace levin::text {

void RowsOptions::fields(FieldVisitor& field) {
  field("task", task,
        "task: lm, mlm, sft, dpo, classify, tag or embed; empty: derived from the columns");
  field("columns", columns,
        "names of columns in the file, if they differ: text=description,label=section");
  field("validation_file", validation_file, "file with the same columns to validate on");
  field(
      "label_names", label_names,
      "names of classes or tags in the order of their ids; empty: the labels in the file, sorted");
  field("problem_type", problem_type,
        "classify: single_label_classification, regression or multi_label_classification; empty: "
        "derived from the labels");
  field("packing", packing, "pack several rows of the file into one of max_length");
  field("packing_strategy", packing_strategy,
        "how to pack a row longer than max_length: bfd truncates it; bfd_split splits it");
  field("max_length", max_length,
        "maximum number of tokens per row; none: 1024 for lm, sft and dpo, else the tokenizer's");
  field("truncation_mode", truncation_mode,
        "how to truncate a longer row: keep_start, keep_end, or error");
  field("completion_only_loss", completion_only_loss,
        "compute the loss on completions only; none: if the rows have a prompt");
  field("assistant_only_loss", assistant_only_loss,
        "compute the loss on the assistant's messages only");
  field("chat_template", chat_template,
        "chat template in Jinja, or the name of one; empty: the tokenizer's");
  field("eos_token", eos_token,
        "token to append to a text or completion; none: the tokenizer's; empty: no token");
  field("mlm_probability", mlm_probability,
        "mlm: probability that a token is selected for masking");
  field("mask_replace_prob", mask_replace_prob,
        "mlm: probability that a selected token becomes the mask token");
  field("random_replace_prob", random_replace_prob,
        "mlm: probability that a selected token becomes a random token");
  field("batch_size", batch_size, "rows per batch on one rank");
  field("eval_batch_size", eval_batch_size, "rows per validation batch; none: batch_size");
  field("train_sampling_strategy", train_sampling_strategy,
        "order of training rows: random, sequential or group_by_length");
  field("pad_to_multiple_of", pad_to_multiple_of,
        "pad each batch to a multiple of this many tokens");
  field("pad_to_max_length", pad_to_max_length, "pad every batch to max_length");
  field("drop_last", drop_last, "drop the last training batch if it is smaller");
  field("pad_last_batch", pad_last_batch, "fill up the last batch if it is smaller");
  field("num_workers", num_workers, "threads that assemble batches");
  field("num_threads", num_threads, "threads that tokenize; 0: one for each core");
  field("cache_dir", cache_dir,
        "cache folder of tokenized files; empty: LEVIN_ROWS_CACHE, or levin/rows in the user's "
        "cache");
}

std::vector<std::string> tasks_of_rows_option(std::string_view option) {
  static const std::map<std::string, std::vector<std::string>, std::less<>> kTasks = {
      {"label_names", {"classify", "tag"}},
      {"problem_type", {"classify"}},
      {"packing", {"classify", "tag", "lm", "mlm", "sft"}},
      {"packing_strategy", {"classify", "tag", "lm", "mlm", "sft"}},
      {"completion_only_loss", {"sft"}},
      {"assistant_only_loss", {"sft"}},
      {"chat_template", {"sft", "dpo"}},
      {"eos_token", {"lm", "sft", "dpo"}},
      {"mlm_probability", {"mlm"}},
      {"mask_replace_prob", {"mlm"}},
      {"random_replace_prob", {"mlm"}}};
  const auto found = kTasks.find(option);
  return found == kTasks.end() ? std::vector<std::string>() : found->second;
}

}  // namespace levin::text
