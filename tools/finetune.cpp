// levin finetune TASK --model DIR --data FILE: trains a pretrained model, or an adapter for it, on the rows of a file.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/console/last_words.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/base/options/option_group.h"
#include "levin/base/options/read_options.h"
#include "levin/base/reading/regular_file.h"
#include "levin/models/fine_tune/fine_tune.h"
#include "levin/models/lora.h"
#include "levin/models/pretrained_parts.h"
#include "levin/module/parameters.h"
#include "levin/rows/rows.h"
#include "levin/text/tokenizer.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/trainer.h"
#include "tools/command.h"
#include "tools/output_folder.h"

namespace levin::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
    R"(usage: levin finetune TASK --model DIR --data FILE [--val FILE] [--lora-r 16] [options]

  classify   rows of text and label: text classification with a new head for these labels
  tag        rows of tokens and tags: token classification, one label per word, entities in BIO
  embed      rows of anchor, positive and optional negatives: loss with in-batch negatives;
             rows with a score: cosine loss
  lm, mlm    rows of text: causal or masked language modelling
  sft        rows of prompt and completion, or messages: the loss is computed on the answers
  dpo        rows of prompt, chosen and rejected: the reference is the model without its adapter

FILE is *.jsonl, *.json, *.csv or *.tsv. The result is written to --output: if --lora-r is above 0, an
adapter in PEFT's format; with --merge, or without an adapter, a full model in the format of transformers.
See docs/finetune.md.

  levin finetune classify --model minilm --data train.jsonl --val test.jsonl --lora-r 16 --devices 2
  levin finetune sft --model qwen3 --data chats.jsonl --lora-r 16 --packing --compile replay --output chat
  levin finetune TASK --help            lists all options, including those of the trainer
)";

struct Finetune {
  std::string model, data, val, adapter, dtype, output = "tuned";
  bool merge = false, activation_checkpointing = false, overwrite = false;
  int64_t lora_r = 0;
  double lora_alpha = 0, lora_dropout = 0;
  std::vector<std::string> lora_target, modules_to_save;
  bool use_dora = false, use_rslora = false;
  std::string sample_prompts;
  bool sample_chat = false;
  int64_t sample_every_n_steps = 0;

  void fields(FieldVisitor& field) {
    field("model", model, "folder of the model, as transformers saves it");
    field("data", data, "file of rows to train on: JSON lines, CSV or TSV");
    field("val", val, "file of rows with the same columns to validate on");
    field("output", output, "folder to write the adapter or the model to");
    field("overwrite", overwrite, "replace files in an output folder that levin has not written");
    field("lora_r", lora_r, "rank of the LoRA adapter; 0: train all weights");
    field("lora_alpha", lora_alpha, "LoRA alpha: the adapter is scaled by alpha / r; 0: 2 r");
    field("lora_dropout", lora_dropout, "dropout on the adapter's input");
    field("lora_target", lora_target,
          "modules that get an adapter: ends of their names, or all-linear; empty: the default of "
          "the model family");
    field("modules_to_save", modules_to_save, "modules to train in full and save with the adapter");
    field("use_dora", use_dora, "use DoRA: an adapter with magnitudes");
    field("use_rslora", use_rslora, "use rsLoRA: divide alpha by the square root of r");
    field("adapter", adapter, "folder of an adapter to continue training");
    field("merge", merge, "merge the adapter into the model and write the full model");
    field("dtype", dtype,
          "dtype of the weights; empty: the folder's with an adapter, else float32");
    field("activation_checkpointing", activation_checkpointing,
          "recompute activations of the blocks in backward instead of keeping them");
    field("sample_prompts", sample_prompts,
          "file of prompts, one per line; the model generates from them after each epoch");
    field("sample_chat", sample_chat, "format these prompts as messages with the chat template");
    field("sample_every_n_steps", sample_every_n_steps,
          "generate from them also every N optimizer steps; 0: only after epochs");
  }
  bool adapts() const { return lora_r > 0 || !adapter.empty(); }
};

/// Names of options that the command line or --config gives a value.
using Given = std::set<std::string>;

/// The fields of several aggregates as one; a name that came before is left out.
class Once final : public FieldVisitor {
 public:
  Once(FieldVisitor& to, std::vector<std::string> hidden) : to_(to), seen_(std::move(hidden)) {}

 private:
  void visit(Field field) override {
    const bool is_heading = field.name.empty();
    if (!is_heading && std::ranges::count(seen_, field.name) > 0) return;
    seen_.push_back(field.name);
    to_.take(std::move(field));
  }

  FieldVisitor& to_;
  std::vector<std::string> seen_;
};

std::string model_task(const std::string& task) {
  if (task == "classify") return "text-classification";
  if (task == "tag") return "token-classification";
  if (task == "embed") return "sentence-similarity";
  return task == "mlm" ? "fill-mask" : "text-generation";
}

/// The tasks that an option of the command has an effect for; empty: all of them.
std::vector<std::string> tasks_of(const std::string& option) {
  if (option.starts_with("sample_")) return {"lm", "sft", "dpo"};
  if (option == "objective") return {"embed"};
  std::vector<std::string> tasks;
  for (const std::string& objective : models::objectives_of_option(option)) {
    const std::string task = objective == "dpo" ? "dpo" : "embed";
    if (std::ranges::count(tasks, task) == 0) tasks.push_back(task);
  }
  return tasks.empty() ? text::tasks_of_rows_option(option) : tasks;
}

void check_used(const std::string& task, const Given& given) {
  for (const std::string& option : given) {
    const std::vector<std::string> tasks = tasks_of(option);
    LEVIN_CHECK(tasks.empty() || std::ranges::count(tasks, task) > 0, "tools.finetune",
                "got {}, but {} does not use it (it is for {}); leave it out",
                detail::flag_of(option), task, to_text(tasks));
  }
}

/// Options that have an effect beside another one alone.
void check_together(const Finetune& command, const Given& given) {
  const auto want = [&](bool is_there, const char* other, std::vector<std::string> options) {
    for (const std::string& option : options) {
      LEVIN_CHECK(is_there || !given.contains(option), "tools.finetune",
                  "got {} without {}, so it has no effect; give both or neither",
                  detail::flag_of(option), other);
    }
  };
  LEVIN_CHECK(command.lora_r >= 0, "tools.finetune",
              "got --lora-r {}, wanted the rank of an adapter, or 0 for none", command.lora_r);
  LEVIN_CHECK(command.lora_alpha >= 0, "tools.finetune",
              "got --lora-alpha {}, wanted a number above 0, or 0 for twice the rank",
              command.lora_alpha);
  const std::vector<std::string> shapes{"lora_alpha", "lora_dropout", "lora_target",
                                        "use_dora",   "use_rslora",   "modules_to_save"};
  for (const std::string& option : shapes) {
    LEVIN_CHECK(command.adapter.empty() || !given.contains(option), "tools.finetune",
                "got {} and --adapter, but the files of the adapter set it; leave out one of them",
                detail::flag_of(option));
  }
  LEVIN_CHECK(command.adapter.empty() || command.lora_r == 0, "tools.finetune",
              "got --lora-r and --adapter, but the files of the adapter set the rank; leave out "
              "one of them");
  want(command.lora_r > 0, "--lora-r, as --lora-r 16", shapes);
  want(!command.sample_prompts.empty(), "--sample-prompts",
       {"sample_chat", "sample_every_n_steps"});
  want(!command.val.empty(), "--val", {"eval_batch_size", "recall_at"});
  LEVIN_CHECK(command.sample_every_n_steps >= 0, "tools.finetune",
              "got --sample-every-n-steps {}, wanted 0 or more", command.sample_every_n_steps);
}

/// The objective of the task: rows with scores and rows without have different ones.
std::string objective_of(const std::string& task, const std::string& asked, bool has_scores,
                         const Given& given) {
  if (task == "sft" || task == "dpo") return task;
  if (task != "embed") return "auto";
  const std::string objective = asked != "auto" ? asked
                                : has_scores    ? "cosine"
                                                : "in-batch-negatives";
  LEVIN_CHECK((objective == "cosine") == has_scores, "tools.finetune",
              "got --objective {} and rows {} scores; cosine needs scores, and the other "
              "objectives take none",
              printable(objective), has_scores ? "with" : "without");
  for (const std::string& option : given) {
    const std::vector<std::string> objectives = models::objectives_of_option(option);
    LEVIN_CHECK(objectives.empty() || std::ranges::count(objectives, objective) > 0,
                "tools.finetune",
                "got {}, but these rows are trained with {}, which does not use it (it is for {})",
                detail::flag_of(option), objective, to_text(objectives));
  }
  return objective;
}

void check_task(const std::string& task) {
  const std::vector<std::string> known{"classify", "tag", "embed", "lm", "mlm", "sft", "dpo"};
  const auto near = nearest(task, known);
  LEVIN_CHECK(std::ranges::count(known, task) > 0, "tools.finetune", "got '{}', wanted one of {}{}",
              printable(task), to_text(known), near ? "; did you mean '" + *near + "'?" : "");
}

std::shared_ptr<models::Pretrained> open_model(const Finetune& command, const std::string& task,
                                               text::Rows& rows) {
  models::PretrainedOptions options{.task = model_task(task),
                                    .dtype = !command.dtype.empty() ? command.dtype
                                             : command.adapts()     ? "auto"
                                                                    : "float32",
                                    .activation_checkpointing = command.activation_checkpointing};
  if (task == "classify" || task == "tag") {
    options.num_labels = rows.num_labels();
    options.label_names = rows.label_names();
    LEVIN_CHECK(rows.num_labels() > 1 || rows.problem_type() != "single_label_classification",
                "tools.finetune",
                "{} has only one label, so a classifier has nothing to learn; give rows with at "
                "least two labels",
                command.data);
  }
  auto net = models::from_pretrained(command.model, options);
  // Whatever the folder was trained for before: the rows say it, and the result's config.json.
  if (task == "classify") parts_of(*net).config.set("problem_type", rows.problem_type());
  if (!command.adapter.empty()) {
    lora::load(*net, command.adapter);
  } else if (command.lora_r > 0) {
    const auto r = static_cast<double>(command.lora_r);
    lora::add(net, {.r = command.lora_r,
                    .lora_alpha = command.lora_alpha > 0 ? command.lora_alpha : 2 * r,
                    .lora_dropout = command.lora_dropout,
                    .target_modules = command.lora_target,
                    .use_rslora = command.use_rslora,
                    .use_dora = command.use_dora,
                    .modules_to_save = command.modules_to_save});
  }
  return net;
}

/// A folder of the model itself would then be of neither.
void check_places(const Finetune& command) {
  LEVIN_CHECK(!command.model.empty() && !command.data.empty(), "tools.finetune",
              "got no {}; levin finetune --help shows the usage",
              command.model.empty() ? "--model" : "--data");
  std::error_code error;
  LEVIN_CHECK(!fs::equivalent(command.model, command.output, error), "tools.finetune",
              "--output is the folder of the model, '{}'; name another folder", command.output);
  check_output_folder(command.output, command.overwrite, "tools.finetune");
  LEVIN_CHECK(!command.merge || command.adapts(), "tools.finetune",
              "--merge merges an adapter into the model, but there is no adapter; add --lora-r");
}

bool writes(const std::string& task) { return task == "lm" || task == "sft" || task == "dpo"; }

/// The callback that generates sample texts during training; nullptr without --sample-prompts.
std::shared_ptr<Callback> samples(const Finetune& command,
                                  std::shared_ptr<const text::Tokenizer> tokenizer) {
  if (command.sample_prompts.empty()) return nullptr;
  std::string why;
  const auto text = posix::read_text(command.sample_prompts, why);
  LEVIN_CHECK(text, "tools.finetune", "--sample-prompts: cannot read '{}': {}",
              command.sample_prompts, why);
  std::istringstream file(*text);
  std::vector<std::string> prompts;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) prompts.push_back(line);
  LEVIN_CHECK(!prompts.empty(), "tools.finetune",
              "--sample-prompts: '{}' has no prompts; write one per line", command.sample_prompts);
  return sample_texts({.prompts = prompts,
                       .chat = command.sample_chat,
                       .tokenizer = std::move(tokenizer),
                       .every_n_steps = command.sample_every_n_steps});
}

/// Where the result is, and what can be done with it.
void say_where(const Finetune& command, const std::string& task, bool has_template) {
  const bool is_adapter = command.adapts() && !command.merge;
  std::printf("%s is in %s\n", is_adapter ? "the adapter" : "the model", command.output.c_str());
  if (!writes(task)) return;
  const std::string adapter = is_adapter ? " --adapter " + command.output : "";
  std::printf("generate text with it: levin generate --model %s%s%s\n",
              (is_adapter ? command.model : command.output).c_str(), adapter.c_str(),
              has_template && task != "lm" ? " --chat" : "");
}

/// Its errors say at which epoch and batch they came, which the Trainer knows as long as it lives.
void fit(Trainer& trainer, const std::shared_ptr<Module>& module,
         const std::shared_ptr<DataModule>& rows) {
  try {
    trainer.fit(module, rows);
  } catch (const std::exception&) {
    throw std::runtime_error(levin::detail::last_words());
  }
}

void train(const std::string& task, const Finetune& command, text::RowsOptions rows_options,
           models::FineTuneOptions tuning, TrainerOptions options, const Given& given) {
  const auto tokenizer =
      std::make_shared<const text::Tokenizer>(text::Tokenizer::from_pretrained(command.model));
  if (auto callback = samples(command, tokenizer)) options.callbacks.push_back(callback);
  // Before the model: it seeds what that draws, and starts the other processes.
  Trainer trainer(options);
  rows_options.task = task;
  rows_options.validation_file = command.val;
  const auto rows = text::rows(command.data, *tokenizer, rows_options);
  rows->prepare_data();
  tuning.objective = objective_of(task, tuning.objective, !rows->problem_type().empty(), given);
  const auto net = open_model(command, task, *rows);
  const auto module = models::fine_tune(net, tuning);
  fit(trainer, module, rows);
  const bool is_main = trainer.accelerator().is_main_process();
  if (is_main) {
    for (const auto& [name, value] : trainer.callback_metrics()) {
      if (name.starts_with("val_")) std::printf("%s=%.6g\n", name.c_str(), value);
    }
  }
  const WholeScope whole(*net);
  if (!is_main) return;
  mark_output_folder(command.output, "levin finetune " + task);
  net->save_pretrained(command.output, {.merge = command.merge});
  say_where(command, task, tokenizer->chat_template().has_value());
}

}  // namespace

int finetune(int argc, char** argv) {
  const std::string task = argc > 1 ? argv[1] : "--help";
  if (task == "--help" || task == "-h") {
    std::fputs(kUsage, stdout);
    return argc > 1 ? 0 : 2;
  }
  check_task(task);
  Finetune command;
  text::RowsOptions rows;
  models::FineTuneOptions tuning;
  TrainerOptions options{.max_epochs = 3, .num_sanity_val_steps = 0};
  const auto read = detail::read_options(
      {argv + 2, argv + argc}, {.program = "levin finetune " + task}, [&](FieldVisitor& field) {
        // --seed is the trainer's, which the rows take up; task and validation file stand above.
        Once once(field, {"task", "validation_file"});
        option_group(once, "model, adapter and output");
        command.fields(once);
        option_group(once, "loss");
        tuning.fields(once);
        options.fields(once);
        option_group(once, "rows and batches");
        rows.fields(once);
      });
  if (read.text) {
    std::fputs(read.text->c_str(), stdout);
    return 0;
  }
  check_places(command);
  check_used(task, read.given);
  check_together(command, read.given);
  train(task, command, rows, tuning, options, read.given);
  return 0;
}

}  // namespace levin::tools
