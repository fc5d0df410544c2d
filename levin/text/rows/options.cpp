#include <map>

#include "levin/text/rows/rows.h"

namespace levin::text {

void RowsOptions::fields(FieldVisitor& field) {
  field("task", task, "lm, mlm, sft, dpo, classify, tag or embed; empty: found from the columns");
  field("columns", columns, "columns of other names: text=description,label=section");
  field("validation_file", validation_file, "a file of the same columns for validation");
  field("label_names", label_names, "classes or tags by their number; empty: what comes, sorted");
  field("problem_type", problem_type,
        "of classify: single_label_classification, regression or multi_label_classification; "
        "empty: by "
        "the labels");
  field("packing", packing, "put several rows of the file into one of max_length");
  field("packing_strategy", packing_strategy,
        "bfd: what is longer than max_length is cut; bfd_split: it is divided");
  field("max_length", max_length,
        "tokens of a row at most; none: 1024 for lm, sft and dpo, else the tokenizer's");
  field("truncation_mode", truncation_mode, "keep_start, keep_end, or error for a longer row");
  field("completion_only_loss", completion_only_loss,
        "the loss counts completions alone; none: where a row has a prompt");
  field("assistant_only_loss", assistant_only_loss,
        "the loss counts what the assistant says alone");
  field("chat_template", chat_template, "in Jinja, or a name; empty: the tokenizer's");
  field("eos_token", eos_token, "ends a text or completion; none: the tokenizer's; empty: nothing");
  field("mlm_probability", mlm_probability, "of a token to be drawn, for mlm");
  field("mask_replace_prob", mask_replace_prob, "of a drawn token to become the mask");
  field("random_replace_prob", random_replace_prob, "of a drawn token to become any other");
  field("batch_size", batch_size, "rows of a batch on one rank");
  field("eval_batch_size", eval_batch_size, "rows of a batch in validation; none: batch_size");
  field("train_sampling_strategy", train_sampling_strategy,
        "random, sequential or group_by_length");
  field("pad_to_multiple_of", pad_to_multiple_of, "tokens; a batch is padded up to a multiple");
  field("pad_to_max_length", pad_to_max_length, "pad every batch to max_length");
  field("drop_last", drop_last, "leave out a last batch of training that is shorter");
  field("pad_last_batch", pad_last_batch, "fill a last batch up that is shorter");
  field("num_workers", num_workers, "threads that put batches together");
  field("num_threads", num_threads, "threads that tokenize; 0: as many as there are cores");
  field("cache_dir", cache_dir,
        "folder of tokenized files; empty: LEVIN_ROWS_CACHE, or levin/rows in the user's cache");
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
