#include <map>

#include "levin/rows/rows.h"

namespace levin::text {

void RowsOptions::fields(FieldVisitor& field) {
  field("task", task,
        "training task: lm, mlm, sft, dpo, classify, tag or embed; empty: from the columns");
  field("columns", columns, "rename columns, as role=column: text=description,label=section");
  field("validation_file", validation_file, "path of a validation file with the same columns");
  field("label_names", label_names,
        "names of classes or tags, in order of their ids; empty: those in the file, sorted");
  field("problem_type", problem_type,
        "classify: single_label_classification, regression or multi_label_classification; empty: "
        "from the labels");
  field("packing", packing, "pack several rows of the file into one of max_length tokens");
  field("packing_strategy", packing_strategy,
        "rows longer than max_length: bfd truncates them, bfd_split splits them");
  field("max_length", max_length,
        "maximum tokens per row; none: 1024 for lm, sft and dpo, else the tokenizer's maximum");
  field("truncation_mode", truncation_mode,
        "truncation of rows longer than max_length: keep_start, keep_end or error");
  field("completion_only_loss", completion_only_loss,
        "compute the loss on completions only; none: if rows have prompts");
  field("assistant_only_loss", assistant_only_loss, "compute the loss on assistant messages only");
  field("chat_template", chat_template,
        "chat template: Jinja source or a name; empty: the tokenizer's");
  field("eos_token", eos_token,
        "token that ends a text or completion; none: the tokenizer's; empty: no token");
  field("mlm_probability", mlm_probability,
        "mlm: probability that a token is selected for prediction");
  field("mask_replace_prob", mask_replace_prob,
        "mlm: probability that a selected token becomes mask_token");
  field("random_replace_prob", random_replace_prob,
        "mlm: probability that a selected token becomes a random token");
  field("batch_size", batch_size, "rows per batch on each rank");
  field("eval_batch_size", eval_batch_size,
        "rows per validation batch on each rank; none: batch_size");
  field("train_sampling_strategy", train_sampling_strategy,
        "order of training rows: random, sequential or group_by_length");
  field("pad_to_multiple_of", pad_to_multiple_of,
        "pad each batch to a multiple of this many tokens");
  field("pad_to_max_length", pad_to_max_length, "pad every batch to max_length");
  field("drop_last", drop_last, "drop the last training batch if it is smaller");
  field("pad_last_batch", pad_last_batch, "fill up the last batch if it is smaller");
  field("num_workers", num_workers, "number of threads that collate batches");
  field("num_threads", num_threads, "number of threads that tokenize; 0: one per core");
  field("cache_dir", cache_dir,
        "folder for tokenized files; empty: LEVIN_ROWS_CACHE, or levin/rows in the user's cache");
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
