#include "levin/rows/plan.h"

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/text/tokenizer_parts.h"

namespace levin::text::row {
namespace {

constexpr int64_t kLongest = 1 << 24;   // tokens of a sample
constexpr int64_t kUsualLength = 1024;  // TRL's, and the most of transformers' run_mlm

void check_one_of(std::string_view name, const std::string& value,
                  std::initializer_list<std::string_view> values) {
  std::string all;
  for (const std::string_view each : values) {
    all += (all.empty() ? "" : ", ") + (each.empty() ? "nothing" : std::string(each));
  }
  LEVIN_CHECK(std::ranges::count(values, value) > 0, "text.rows.options",
              "got {} '{}', wanted one of {}", name, value, all);
}

void check_at_least(std::string_view name, int64_t value, int64_t least) {
  LEVIN_CHECK(value >= least, "text.rows.options", "got {} {}, wanted {} or more", name, value,
              least);
}

void check_fraction(std::string_view name, double value) {
  LEVIN_CHECK(value >= 0 && value <= 1, "text.rows.options", "got {} {}, wanted 0 to 1", name,
              value);
}

std::optional<int64_t> length_for(const Plan& plan, const Tokenizer& tokenizer) {
  if (plan.options.max_length) return plan.options.max_length;
  if (plan.is_causal()) return kUsualLength;
  const std::optional<int64_t> of_model = tokenizer.model_max_length();
  if (plan.task == "mlm") return std::min(kUsualLength, of_model.value_or(kUsualLength));
  return of_model && *of_model > 0 && *of_model <= kLongest ? of_model : std::nullopt;
}

std::string eos_for(const Plan& plan, const Tokenizer& tokenizer) {
  if (!plan.is_causal() || plan.in_chats) return "";
  if (plan.options.eos_token) {
    LEVIN_CHECK(plan.options.eos_token->empty() || tokenizer.token_to_id(*plan.options.eos_token),
                "text.rows.tokenizer", "got eos_token '{}', but the tokenizer has no such token",
                *plan.options.eos_token);
    return *plan.options.eos_token;
  }
  const auto eos = tokenizer.special_token("eos_token");
  LEVIN_CHECK(eos && tokenizer.token_to_id(*eos), "text.rows.tokenizer",
              "the tokenizer has no eos_token, which ends each text of {} rows; set eos_token, or "
              "set it to \"\" for no token",
              plan.task);
  return *eos;
}

/// Checks that the rows allow to tell the assistant's text from the rest.
void check_generation(const Plan& plan, const Tokenizer& tokenizer) {
  LEVIN_CHECK(
      plan.task == "sft" && plan.in_chats, "text.rows.options",
      "assistant_only_loss needs sft rows with messages, but these rows are for {}; leave it out",
      plan.in_chats ? plan.task : plan.task + " of texts");
  const TokenizerParts& parts = parts_of(tokenizer);
  const ChatOptions options{.chat_template = plan.options.chat_template};
  const std::string& source = parts.template_of(options);
  LEVIN_CHECK(parts.parsed_template(source)->has_generation(), "text.rows.generation",
              "assistant_only_loss needs a chat template that puts {{% generation %}} and {{% "
              "endgeneration %}} around assistant text, but this one does not; set chat_template "
              "to one that does");
}

/// An option of other tasks would do nothing.
void check_used(const Plan& plan) {
  const auto given = options_as_text(plan.options), otherwise = options_as_text(RowsOptions());
  for (const auto& [name, value] : given) {
    const std::vector<std::string> tasks = tasks_of_rows_option(name);
    const bool is_used = tasks.empty() || std::ranges::count(tasks, plan.task) > 0;
    LEVIN_CHECK(is_used || value == otherwise.at(name), "text.rows.options",
                "got {} = {} and rows for {}, which do not use it; it is an option of {}", name,
                printable(value), plan.task, to_text(tasks));
  }
}

void check_together(const Plan& plan, const Tokenizer& tokenizer) {
  const RowsOptions& options = plan.options;
  check_used(plan);
  LEVIN_CHECK(options.packing || options.packing_strategy == "bfd", "text.rows.options",
              "got packing_strategy {} without packing; set packing, or leave it out",
              options.packing_strategy);
  LEVIN_CHECK(options.chat_template.empty() || plan.in_chats, "text.rows.options",
              "got a chat_template, but these rows have no messages; leave it out");
  LEVIN_CHECK(!options.eos_token || !plan.in_chats, "text.rows.options",
              "got an eos_token, but the chat template decides how messages end; leave it out");
  LEVIN_CHECK(!plan.splits() || plan.task == "lm" || plan.task == "sft", "text.rows.options",
              "packing_strategy bfd_split splits texts, but rows for {} cannot be split; use bfd",
              plan.task);
  LEVIN_CHECK(plan.max_length || (!options.packing && !options.pad_to_max_length),
              "text.rows.options", "the tokenizer has no maximum length; set max_length");
  LEVIN_CHECK(!options.completion_only_loss.value_or(false) || plan.columns.has("completion"),
              "text.rows.options",
              "completion_only_loss needs rows with prompt and completion; leave it out");
  if (options.assistant_only_loss) check_generation(plan, tokenizer);
  LEVIN_CHECK(plan.task != "mlm" || tokenizer.special_token_id("mask_token"), "text.rows.tokenizer",
              "the tokenizer has no mask_token, but mlm replaces tokens with it; use a tokenizer "
              "that has one");
}

}  // namespace

void check_options(const RowsOptions& options) {
  check_one_of("task", options.task, {"", "lm", "mlm", "sft", "dpo", "classify", "tag", "embed"});
  check_one_of("packing_strategy", options.packing_strategy, {"bfd", "bfd_split"});
  check_one_of("truncation_mode", options.truncation_mode, {"keep_start", "keep_end", "error"});
  check_one_of("train_sampling_strategy", options.train_sampling_strategy,
               {"random", "sequential", "group_by_length"});
  if (options.max_length) {
    check_at_least("max_length", *options.max_length, 1);
    LEVIN_CHECK(*options.max_length <= kLongest, "text.rows.options",
                "got max_length {}, wanted at most {}", *options.max_length, kLongest);
  }
  check_at_least("batch_size", options.batch_size, 1);
  check_at_least("eval_batch_size", options.eval_batch_size.value_or(1), 1);
  check_at_least("pad_to_multiple_of", options.pad_to_multiple_of, 1);
  check_at_least("num_workers", options.num_workers, 0);
  check_at_least("num_threads", options.num_threads, 0);
  check_one_of("problem_type", options.problem_type,
               {"", "single_label_classification", "regression", "multi_label_classification"});
  check_fraction("mlm_probability", options.mlm_probability);
  LEVIN_CHECK(options.mlm_probability > 0, "text.rows.options",
              "got mlm_probability 0, wanted above 0: without selected tokens there is no loss");
  check_fraction("mask_replace_prob", options.mask_replace_prob);
  check_fraction("random_replace_prob", options.random_replace_prob);
  check_fraction("mask_replace_prob + random_replace_prob",
                 options.mask_replace_prob + options.random_replace_prob);
  LEVIN_CHECK(
      !options.packing || options.train_sampling_strategy != "group_by_length", "text.rows.options",
      "got group_by_length with packing, but packed rows all have the same length; use random");
  LEVIN_CHECK(!options.drop_last || !options.pad_last_batch, "text.rows.options",
              "got drop_last and pad_last_batch; set only one");
}

Plan make_plan(const data::Record& first, const Tokenizer& tokenizer, const RowsOptions& options) {
  Plan plan{.options = options,
            .task = {},
            .columns = {},
            .negatives = {},
            .eos = {},
            .max_length = std::nullopt};
  find_columns(first, plan);
  plan.completion_only =
      options.completion_only_loss.value_or(plan.task == "sft" && plan.columns.has("completion"));
  plan.max_length = length_for(plan, tokenizer);
  plan.eos = eos_for(plan, tokenizer);
  check_together(plan, tokenizer);
  return plan;
}

}  // namespace levin::text::row
