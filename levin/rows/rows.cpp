#include "levin/rows/rows.h"

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/random.h"
#include "levin/data/sampler.h"
#include "levin/data/sources/sources.h"
#include "levin/rows/batches/rows_dataset.h"
#include "levin/rows/cache/cache.h"
#include "levin/rows/plan.h"

namespace levin::text {
namespace {

using row::Fields;

Fields fields_of(const std::string& task) {
  if (task == "mlm") return Fields::kMasked;
  if (task == "classify") return Fields::kLabelled;
  if (task == "tag") return Fields::kTagged;
  if (task == "dpo") return Fields::kSequences;
  if (task == "embed") return Fields::kTexts;
  return Fields::kLanguage;
}

/// Returns the id of the padding. Any id will do if there is none, since the mask marks the
/// padding.
int32_t pad_id_of(const Tokenizer& tokenizer) {
  for (const char* role : {"pad_token", "eos_token"}) {
    if (const auto id = tokenizer.special_token_id(role)) return *id;
  }
  return 0;
}

row::Layout layout_of(const row::Plan& plan, const Tokenizer& tokenizer) {
  const RowsOptions& options = plan.options;
  row::Layout layout{.fields = fields_of(plan.task),
                     .pad_id = pad_id_of(tokenizer),
                     .multiple = options.pad_to_multiple_of,
                     .drawn = options.mlm_probability,
                     .masked = options.mask_replace_prob,
                     .replaced = options.random_replace_prob};
  if (tokenizer.special_token("pad_token")) {
    const PaddingOptions padding = tokenizer.default_padding();
    layout.pad_type = padding.pad_type_id;
    // Texts that are gone on with are padded behind, whatever the tokenizer says, as TRL does it.
    layout.pads_left = !plan.is_causal() && !options.packing && padding.direction == "left";
  }
  if (options.packing || options.pad_to_max_length) {
    layout.width = (*plan.max_length + layout.multiple - 1) / layout.multiple * layout.multiple;
  }
  if (plan.task == "mlm") {
    layout.mask_id = *tokenizer.special_token_id("mask_token");
    layout.vocab_size = tokenizer.vocab_size();
  }
  return layout;
}

/// Returns what the loss counts for a task.
const char* counted_as(const std::string& task) {
  if (task == "classify") return "labels";
  if (task == "tag") return "tags";
  return task == "embed" ? "pairs" : "tokens";
}

std::string problem_of(const row::LabelSet& labels) {
  switch (labels.kind) {
    case row::LabelKind::kNone:
      return "";
    case row::LabelKind::kClasses:
      return "single_label_classification";
    case row::LabelKind::kNumber:
      return "regression";
    case row::LabelKind::kNumbers:
      return "multi_label_classification";
  }
  return "";
}

/// Always, also of rows that were made before: one line. A warning where rows are not learnt from.
void tell(const std::filesystem::path& file, const std::string& task, const row::About& about,
          bool from_cache) {
  const RowsReport& report = about.report;
  std::string line = fmt::format(
      "rows: {}: {} rows read{}, {} truncated, {} dropped", file.filename().string(), report.rows,
      from_cache ? " (tokenized before)" : "", report.truncated, report.dropped);
  if (report.idle > 0) line += fmt::format(", {} kept without a token in the loss", report.idle);
  line += fmt::format(", {} {} in the loss", report.counted, counted_as(task));
  if (task == "classify") line += ": " + problem_of(about.labels);
  if (report.dropped + report.idle > 0) {
    log::warn("{}", line);
  } else {
    log::info("{}", line);
  }
}

}  // namespace

/// A file with what became of it, made when it is first asked for.
struct Rows::Parts {
  struct File {
    data::RecordsPtr records;
    std::shared_ptr<const row::TokenFile> tokens = {};
    DatasetPtr dataset = {};
    RowsReport report = {};
  };

  Parts(RowsOptions given, const Tokenizer& its_tokenizer)
      : options(std::move(given)), tokenizer(its_tokenizer) {}

  const row::Plan& the_plan() {
    if (!plan) {
      LEVIN_CHECK(train.records->size() > 0, "text.rows.empty", "{} has no rows",
                  train.records->path().string());
      plan = row::make_plan(train.records->read(0), tokenizer, options);
    }
    return *plan;
  }

  File& the_train() {
    make(train, std::nullopt);
    return train;
  }

  File& the_validation() {
    LEVIN_CHECK(validation.records, "text.rows.options",
                "there is no validation_file; set RowsOptions::validation_file");
    const row::LabelSet& labels = the_train().tokens->about().labels;
    const bool has_labels = labels.kind != row::LabelKind::kNone;
    make(validation, has_labels ? std::optional(labels) : std::nullopt);
    return validation;
  }

  void make(File& file, std::optional<row::LabelSet> known) {
    if (file.dataset) return;
    LEVIN_CHECK(file.records->size() > 0, "text.rows.empty", "{} has no rows",
                file.records->path().string());
    bool from_cache = false;
    file.tokens =
        row::open_tokens({*file.records, the_plan(), tokenizer, std::move(known)}, from_cache);
    file.report = file.tokens->about().report;
    file.report.from_cache = from_cache;
    tell(file.records->path(), the_plan().task, file.tokens->about(), from_cache);
    file.dataset =
        std::make_shared<row::RowsDataset>(file.tokens, layout_of(the_plan(), tokenizer));
  }

  DataLoaderOptions loader_options(const File& file, bool training) {
    const bool in_one_shape = options.pad_last_batch || options.packing;
    DataLoaderOptions made{.batch_size = training
                                             ? options.batch_size
                                             : options.eval_batch_size.value_or(options.batch_size),
                           .num_workers = options.num_workers,
                           .drop_last = training && options.drop_last,
                           .seed = options.seed};
    made.pad_last_batch = in_one_shape && !made.drop_last;
    if (made.pad_last_batch && !file.tokens->has_numbers() && the_plan().task != "embed") {
      made.padding_values = {{"labels", -100}};
    }
    if (!training || options.train_sampling_strategy == "sequential") return made;
    made.shuffle = options.train_sampling_strategy == "random";
    if (made.shuffle) return made;
    std::vector<int64_t> lengths(static_cast<size_t>(file.dataset->size()));
    for (size_t i = 0; i < lengths.size(); ++i) {
      lengths[i] = file.tokens->sample_length(static_cast<int64_t>(i));
    }
    made.sampler =
        length_grouped_sampler(std::move(lengths), options.batch_size,
                               static_cast<uint64_t>(options.seed.value_or(current_seed())));
    return made;
  }

  DataLoader loader(File& file, bool training) {
    return {file.dataset, loader_options(file, training)};
  }

  RowsOptions options;
  const Tokenizer& tokenizer;
  std::optional<row::Plan> plan;
  File train;
  File validation;
};

Rows::Rows(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Rows::~Rows() = default;

void Rows::prepare_data() { setup("fit"); }

void Rows::setup(std::string_view) {
  parts_->the_train();
  if (parts_->validation.records) parts_->the_validation();
}

std::optional<DataLoader> Rows::train_dataloader() {
  return parts_->loader(parts_->the_train(), /*training=*/true);
}

std::optional<DataLoader> Rows::val_dataloader() {
  if (!parts_->validation.records) return std::nullopt;
  return parts_->loader(parts_->the_validation(), /*training=*/false);
}

const std::string& Rows::task() { return parts_->the_plan().task; }

const std::vector<std::string>& Rows::label_names() {
  return parts_->the_train().tokens->about().labels.names;
}

int64_t Rows::num_labels() {
  return task() == "embed" ? 0 : parts_->the_train().tokens->about().labels.count;
}

std::string Rows::problem_type() { return problem_of(parts_->the_train().tokens->about().labels); }

int64_t Rows::max_length() {
  const std::optional<int64_t> length = parts_->the_plan().max_length;
  return length ? *length : report().longest;
}

const RowsReport& Rows::report() { return parts_->the_train().report; }
const RowsReport& Rows::validation_report() { return parts_->the_validation().report; }
DatasetPtr Rows::train_dataset() { return parts_->the_train().dataset; }

DatasetPtr Rows::validation_dataset() {
  return parts_->validation.records ? parts_->the_validation().dataset : nullptr;
}

const RowsOptions& Rows::options() const { return parts_->options; }

std::shared_ptr<Rows> rows(const std::filesystem::path& file, const Tokenizer& tokenizer,
                           RowsOptions options) {
  row::check_options(options);
  auto parts = std::make_unique<Rows::Parts>(std::move(options), tokenizer);
  parts->train.records = data::open_records(file);
  if (const std::string& other = parts->options.validation_file; !other.empty()) {
    parts->validation.records = data::open_records(other);
  }
  return std::shared_ptr<Rows>(new Rows(std::move(parts)));
}

}  // namespace levin::text
