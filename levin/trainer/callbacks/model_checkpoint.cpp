#include "levin/trainer/callbacks/model_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/text.h"
#include "levin/files/atomic.h"
#include "levin/trainer/limits.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

namespace fs = std::filesystem;

/// The epoch that runs, or the one that has just ended.
int64_t newest_epoch(const Trainer& trainer) {
  const int64_t epoch = trainer.current_epoch();
  return trainer.batches_done() == 0 ? std::max<int64_t>(0, epoch - 1) : epoch;
}

/// As "{:02d}" or "{:.4f}" would; what is no number of the kind that the format wants is an error.
template <class Number>
std::string formatted(const std::string& format, Number value) {
  try {
    return fmt::format(fmt::runtime("{:" + format + "}"), value);
  } catch (const fmt::format_error& error) {
    LEVIN_FAIL("trainer.checkpoint.options",
               "got the format '{}' in filename for the value {} ({}); wanted one as 02d for a "
               "count or .2f for a metric",
               format, value, error.what());
  }
}

}  // namespace

ModelCheckpoint::ModelCheckpoint(ModelCheckpointOptions options)
    : options_(std::move(options)), folder_(options_.dirpath) {
  LEVIN_CHECK(options_.mode == "min" || options_.mode == "max", "trainer.checkpoint.options",
              "got mode = '{}', wanted min or max", options_.mode);
  LEVIN_CHECK(options_.save_top_k >= -1 && options_.every_n_train_steps >= 0 &&
                  options_.every_n_epochs.value_or(0) >= 0,
              "trainer.checkpoint.options",
              "got save_top_k = {}, every_n_train_steps = {} and every_n_epochs = {}, wanted at "
              "least -1, 0 and 0",
              options_.save_top_k, options_.every_n_train_steps, to_text(options_.every_n_epochs));
  const int triggers = int{options_.every_n_train_steps > 0} +
                       int{options_.train_time_interval.has_value()} +
                       int{options_.every_n_epochs.value_or(0) > 0};
  LEVIN_CHECK(triggers <= 1, "trainer.checkpoint.options",
              "got more than one of every_n_train_steps, train_time_interval and every_n_epochs; "
              "give the run a model_checkpoint for each");
  LEVIN_CHECK(
      !options_.filename.empty() && options_.filename.find('/') == std::string::npos &&
          options_.filename != "last",
      "trainer.checkpoint.options",
      "got filename = '{}', wanted a name without slashes that is not 'last'; dirpath gives "
      "the folder",
      options_.filename);
}

// Several of one run differ in what they monitor, or in when they save.
std::string ModelCheckpoint::state_key() const {
  std::string key = "model_checkpoint";
  if (!options_.monitor.empty()) key += "-" + options_.monitor;
  if (options_.every_n_train_steps > 0) {
    key += fmt::format("-every_{}_steps", options_.every_n_train_steps);
  }
  if (options_.train_time_interval) {
    key += fmt::format("-every_{}_s", options_.train_time_interval->count());
  }
  if (options_.every_n_epochs.value_or(1) != 1) {
    key += fmt::format("-every_{}_epochs", *options_.every_n_epochs);
  }
  return key;
}

State ModelCheckpoint::state_dict() const {
  State kept;
  for (size_t i = 0; i < kept_.size(); ++i) {
    State one;
    one.set("folder", kept_[i].folder).set("step", kept_[i].step);
    one.set("by_rule", kept_[i].by_rule);
    if (kept_[i].score) one.set("score", *kept_[i].score);
    kept.set(fmt::format("{:06}", i), std::move(one));
  }
  State state;
  return std::move(state.set("kept", std::move(kept))
                       .set("best", best_.folder)
                       .set("last", last_folder_)
                       .set("ranked_step", ranked_step_)
                       .set("due", due_));
}

std::string ModelCheckpoint::best_model_path_in(const State& state) {
  return state.contains("best") ? state.text("best") : "";
}

void ModelCheckpoint::load_state_dict(const State& state) {
  kept_.clear();
  for (const auto& [index, value] : state.child("kept").values()) {
    const State& one = state.child("kept").child(index);
    Saved saved{one.text("folder"), std::nullopt, one.integer("step")};
    if (one.contains("score")) saved.score = one.number("score");
    if (one.contains("by_rule")) saved.by_rule = one.boolean("by_rule");
    if (fs::exists(saved.folder)) kept_.push_back(std::move(saved));
  }
  choose_best();
  if (state.contains("last")) last_folder_ = state.text("last");
  if (state.contains("ranked_step")) ranked_step_ = state.integer("ranked_step");
  if (state.contains("due")) due_ = state.boolean("due");
}

void ModelCheckpoint::setup(Trainer& trainer, Module&, std::string_view) {
  if (options_.dirpath.empty()) folder_ = trainer.checkpoint_dir();
  if (!trainer.accelerator().is_main_process()) return;
  if (const int64_t removed = files::remove_stale_staging(folder_); removed > 0) {
    log::info("model_checkpoint: removed {} half-written checkpoints of a run that died", removed);
  }
}

void ModelCheckpoint::on_train_start(Trainer& trainer, Module&) {
  training_ = true;
  saved_at_ = std::chrono::steady_clock::now();
  last_step_ = trainer.global_step();
  ranked_step_ = std::min(ranked_step_, last_step_);  // of another fit than is resumed
}

bool ModelCheckpoint::epoch_due(int64_t epoch) const {
  const bool otherwise = options_.every_n_train_steps > 0 || options_.train_time_interval;
  const int64_t every = options_.every_n_epochs.value_or(otherwise ? 0 : 1);
  return every > 0 && (epoch + 1) % every == 0;
}

bool ModelCheckpoint::at_train_epoch_end(const Trainer& trainer) const {
  return options_.save_on_train_epoch_end.value_or(
      !trainer.has_validation() || detail::validates_once_an_epoch(trainer.options()));
}

// What it would be ranked by is another step's otherwise, or nothing yet.
bool ModelCheckpoint::waits_for_validation(const Trainer& trainer) const {
  if (options_.monitor.empty() || !trainer.has_validation()) return false;
  return trainer.validation_due();
}

bool ModelCheckpoint::lacks_monitor(const Trainer& trainer) const {
  return !options_.monitor.empty() && !trainer.callback_metrics().contains(options_.monitor);
}

// A value of the epoch is not there in its first steps: such a save waits.
bool ModelCheckpoint::can_rank(Trainer& trainer, bool validation_may_tell) {
  // Rank 0's view for all: another may have logged other names.
  if (!trainer.accelerator().from_main(lacks_monitor(trainer))) return true;
  if (!validation_may_tell && !std::exchange(told_of_monitor_, true)) {
    log::warn(
        "model_checkpoint: nothing named '{}' was logged by step {}, so its checkpoint waits "
        "for it",
        options_.monitor, trainer.global_step());
  }
  return false;
}

void ModelCheckpoint::on_train_batch_end(Trainer& trainer, Module&, const at::Tensor&, const Batch&,
                                         int64_t) {
  const int64_t step = trainer.global_step();
  const int64_t every = options_.every_n_train_steps;
  if (every > 0 && step % every == 0 && step != last_step_) due_ = true;
  if (options_.train_time_interval && trainer.at_step_boundary()) {
    const auto waited = std::chrono::steady_clock::now() - saved_at_;
    if (trainer.accelerator().any(waited >= *options_.train_time_interval)) due_ = true;
  }
  if (!due_ || !trainer.at_step_boundary()) return;
  if (waits_for_validation(trainer) || !can_rank(trainer, trainer.has_validation())) return;
  save_ranked(trainer, trainer.current_epoch());
}

void ModelCheckpoint::on_evaluation_end(Trainer& trainer, Module&, std::string_view) {
  const int64_t epoch = trainer.current_epoch();
  const bool by_epoch = epoch_due(epoch) && !at_train_epoch_end(trainer);
  if (by_epoch || (due_ && can_rank(trainer, false))) save_ranked(trainer, epoch);
}

void ModelCheckpoint::on_train_epoch_end(Trainer& trainer, Module&) {
  // The trainer already counts this epoch as done.
  const int64_t epoch = trainer.current_epoch() - 1;
  const bool by_epoch = epoch_due(epoch) && at_train_epoch_end(trainer);
  if (by_epoch || (due_ && can_rank(trainer, false))) save_ranked(trainer, epoch);
}

void ModelCheckpoint::on_train_end(Trainer& trainer, Module&) {
  training_ = false;
  if (!options_.save_last || trainer.global_step() == last_step_) return;
  save(trainer, newest_epoch(trainer), std::nullopt, /*by_rule=*/false);
}

void ModelCheckpoint::on_exception(Trainer& trainer, Module&, const std::exception&) {
  // Ranks save together, and one that failed, or was left by the others, cannot.
  const bool alone = trainer.accelerator().rank().world_size == 1;
  const bool worth_it = training_ && !failed_ && options_.save_on_exception && alone;
  if (!worth_it || !trainer.at_step_boundary() || trainer.global_step() == last_step_) return;
  save(trainer, newest_epoch(trainer), std::nullopt, /*by_rule=*/false);
  log::error("model_checkpoint: the run ends by an error; step {} was saved in {}",
             trainer.global_step(), last_folder_);
}

void ModelCheckpoint::save_ranked(Trainer& trainer, int64_t epoch) {
  due_ = false;
  if (trainer.global_step() == ranked_step_) return;  // no step since: the same weights
  std::optional<double> score;
  if (!options_.monitor.empty()) {
    score = trainer.accelerator().from_main(trainer.monitored(options_.monitor));
  }
  ranked_step_ = trainer.global_step();
  save(trainer, epoch, score, /*by_rule=*/true);
}

std::string ModelCheckpoint::file_name(const Trainer& trainer, int64_t epoch) const {
  std::string name = options_.filename;
  size_t open = 0;
  while ((open = name.find('{', open)) != std::string::npos) {
    const size_t close = name.find('}', open);
    LEVIN_CHECK(close != std::string::npos, "trainer.checkpoint.options",
                "got filename = '{}', wanted a '}}' for each '{{'", options_.filename);
    const std::string inside = name.substr(open + 1, close - open - 1);
    const size_t colon = inside.find(':');
    const std::string key = inside.substr(0, colon);
    const std::string format = colon == std::string::npos ? "" : inside.substr(colon + 1);
    std::string value = key + "=";
    if (key == "epoch" || key == "step") {
      value += formatted(format, key == "epoch" ? epoch : trainer.global_step());
    } else {
      value += formatted(format.empty() ? ".4f" : format, trainer.monitored(key));
    }
    name.replace(open, close - open + 1, value);
    open += value.size();
  }
  return name;
}

bool ModelCheckpoint::is_ranked(const Saved& saved) const {
  return saved.by_rule && (options_.monitor.empty() || saved.score.has_value());
}

bool ModelCheckpoint::ranks_before(const Saved& a, const Saved& b) const {
  if (options_.monitor.empty()) return a.step > b.step;
  const auto worth = [&](const Saved& saved) {
    if (!saved.score || std::isnan(*saved.score)) return -std::numeric_limits<double>::infinity();
    return options_.mode == "max" ? *saved.score : -*saved.score;
  };
  return worth(a) > worth(b);
}

std::vector<ModelCheckpoint::Saved> ModelCheckpoint::take_surplus() {
  std::stable_sort(kept_.begin(), kept_.end(),
                   [&](const Saved& a, const Saved& b) { return ranks_before(a, b); });
  std::vector<Saved> kept, surplus;
  int64_t best = 0;
  for (Saved& saved : kept_) {
    const bool among_best =
        options_.save_top_k < 0 || (is_ranked(saved) && best < options_.save_top_k);
    if (among_best) ++best;
    const bool is_last = options_.save_last && saved.folder.empty();
    (among_best || is_last ? kept : surplus).push_back(std::move(saved));
  }
  kept_ = std::move(kept);
  return surplus;
}

void ModelCheckpoint::choose_best() {
  const auto best = std::find_if(kept_.begin(), kept_.end(),
                                 [&](const Saved& saved) { return is_ranked(saved); });
  best_ = best == kept_.end() || options_.save_top_k == 0 ? Saved() : *best;
}

bool ModelCheckpoint::keeps(const std::string& folder) const {
  return std::any_of(kept_.begin(), kept_.end(),
                     [&](const Saved& saved) { return saved.folder == folder; });
}

// One name would have one of two checkpoints overwrite the other, and be removed for both.
std::string ModelCheckpoint::free_folder(const Trainer& trainer, const std::string& wanted) const {
  const auto is_taken = [&](const std::string& folder) {
    return std::ranges::any_of(trainer.callbacks(), [&](const auto& callback) {
      const auto* writer = dynamic_cast<const ModelCheckpoint*>(callback.get());
      return writer != nullptr && writer->keeps(folder);
    });
  };
  std::string folder = wanted;
  for (int64_t version = 1; is_taken(folder); ++version) {
    folder = fmt::format("{}-v{}", wanted, version);
  }
  return folder;
}

void ModelCheckpoint::save(Trainer& trainer, int64_t epoch, std::optional<double> score,
                           bool by_rule) {
  const bool is_main = trainer.accelerator().is_main_process();
  const int64_t step = trainer.global_step();
  const std::string wanted = (fs::path(folder_) / file_name(trainer, epoch)).string();
  // The list is brought up to date first, so that the checkpoint itself holds it.
  const std::vector<Saved> kept_before = kept_;
  const Saved best_before = best_;
  const std::string last_before = last_folder_;
  std::erase_if(kept_,
                [&](const Saved& saved) { return saved.folder == wanted && saved.step == step; });
  kept_.push_back({"", score, step, by_rule});
  const std::vector<Saved> surplus = take_surplus();
  const bool useless =
      std::ranges::any_of(surplus, [](const Saved& saved) { return saved.folder.empty(); });
  if (trainer.accelerator().from_main(useless)) {
    kept_ = kept_before;
    return;
  }
  last_folder_ = free_folder(trainer, wanted);
  std::ranges::find(kept_, "", &Saved::folder)->folder = last_folder_;
  choose_best();
  try {
    trainer.save_checkpoint(last_folder_);
    if (is_main) files::replace_link(fs::path(folder_) / "last", last_folder_);
  } catch (const Error& error) {
    failed_ = true;
    kept_ = kept_before;
    best_ = best_before;
    last_folder_ = last_before;
    fail(step, error);
  }
  last_step_ = step;
  saved_at_ = std::chrono::steady_clock::now();
  if (is_main) remove(surplus);
}

// Not what an earlier run has in a folder of its own, nor what was just written over.
void ModelCheckpoint::remove(const std::vector<Saved>& surplus) const {
  for (const Saved& old : surplus) {
    std::error_code no_matter;  // a folder that cannot be removed costs room and nothing else
    const bool is_here = fs::equivalent(fs::path(old.folder).parent_path(), folder_, no_matter);
    if (is_here && !keeps(old.folder)) fs::remove_all(old.folder, no_matter);
  }
}

void ModelCheckpoint::fail(int64_t step, const Error& error) const {
  const std::string before =
      last_folder_.empty() ? "there is no earlier checkpoint of this run"
                           : fmt::format(
                                 "the checkpoint before it is whole: make room and resume with "
                                 "--ckpt-path {}",
                                 last_folder_);
  LEVIN_FAIL("trainer.checkpoint", "step {} could not be saved ({}); {}", step, error.what(),
             before);
}

std::shared_ptr<ModelCheckpoint> model_checkpoint(ModelCheckpointOptions options) {
  return std::make_shared<ModelCheckpoint>(std::move(options));
}

}  // namespace levin
