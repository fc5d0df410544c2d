#include "levin/trainer/callbacks/model_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/files/atomic.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

namespace fs = std::filesystem;

/// The epoch that runs, or the one that has just ended.
int64_t newest_epoch(const Trainer& trainer) {
  const int64_t epoch = trainer.current_epoch();
  return trainer.batches_done() == 0 ? std::max<int64_t>(0, epoch - 1) : epoch;
}

}  // namespace

ModelCheckpoint::ModelCheckpoint(ModelCheckpointOptions options)
    : options_(std::move(options)), folder_(options_.dirpath) {
  LEVIN_CHECK(options_.mode == "min" || options_.mode == "max", "trainer.checkpoint.options",
              "got mode = '{}', wanted min or max", options_.mode);
  LEVIN_CHECK(options_.save_top_k >= -1 && options_.every_n_train_steps >= 0 &&
                  options_.every_n_epochs >= 0,
              "trainer.checkpoint.options",
              "got save_top_k = {}, every_n_train_steps = {} and every_n_epochs = {}, wanted at "
              "least -1, 0 and 0",
              options_.save_top_k, options_.every_n_train_steps, options_.every_n_epochs);
  LEVIN_CHECK(!options_.filename.empty() && options_.filename.find('/') == std::string::npos,
              "trainer.checkpoint.options",
              "got filename = '{}', wanted a name without slashes; dirpath gives the folder",
              options_.filename);
}

std::string ModelCheckpoint::state_key() const {
  return "model_checkpoint" + (options_.monitor.empty() ? "" : "-" + options_.monitor);
}

State ModelCheckpoint::state_dict() const {
  State kept;
  for (size_t i = 0; i < kept_.size(); ++i) {
    State one;
    one.set("folder", kept_[i].folder).set("step", kept_[i].step);
    if (kept_[i].score) one.set("score", *kept_[i].score);
    kept.set(fmt::format("{:06}", i), std::move(one));
  }
  State state;
  return std::move(state.set("kept", std::move(kept)));
}

void ModelCheckpoint::load_state_dict(const State& state) {
  kept_.clear();
  for (const auto& [index, value] : state.child("kept").values()) {
    const State& one = state.child("kept").child(index);
    Saved saved{one.text("folder"), std::nullopt, one.integer("step")};
    if (one.contains("score")) saved.score = one.number("score");
    if (fs::exists(saved.folder)) kept_.push_back(std::move(saved));
  }
  if (!kept_.empty()) best_ = kept_.front();
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
}

bool ModelCheckpoint::by_epoch() const {
  return options_.every_n_train_steps == 0 && !options_.train_time_interval;
}

bool ModelCheckpoint::at_train_epoch_end(const Trainer& trainer) const {
  return options_.save_on_train_epoch_end.value_or(!trainer.has_validation());
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
  if (due_ && trainer.at_step_boundary()) save_ranked(trainer, trainer.current_epoch());
}

void ModelCheckpoint::on_evaluation_end(Trainer& trainer, Module&, std::string_view) {
  if (!by_epoch() || options_.every_n_epochs == 0 || at_train_epoch_end(trainer)) return;
  const int64_t epoch = trainer.current_epoch();
  if ((epoch + 1) % options_.every_n_epochs == 0) save_ranked(trainer, epoch);
}

void ModelCheckpoint::on_train_epoch_end(Trainer& trainer, Module&) {
  if (!by_epoch() || options_.every_n_epochs == 0 || !at_train_epoch_end(trainer)) return;
  // The trainer already counts this epoch as done.
  const int64_t epochs = trainer.current_epoch();
  if (epochs % options_.every_n_epochs == 0) save_ranked(trainer, epochs - 1);
}

void ModelCheckpoint::on_train_end(Trainer& trainer, Module&) {
  training_ = false;
  if (!options_.save_last || trainer.global_step() == last_step_) return;
  save(trainer, newest_epoch(trainer), std::nullopt);
}

void ModelCheckpoint::on_exception(Trainer& trainer, Module&, const std::exception&) {
  // Ranks save together, and one that failed, or was left by the others, cannot.
  const bool alone = trainer.accelerator().rank().world_size == 1;
  const bool worth_it = training_ && !failed_ && options_.save_on_exception && alone;
  if (!worth_it || !trainer.at_step_boundary() || trainer.global_step() == last_step_) return;
  save(trainer, newest_epoch(trainer), std::nullopt);
  log::error("model_checkpoint: the run ends by an error; step {} was saved in {}",
             trainer.global_step(), last_folder_);
}

void ModelCheckpoint::save_ranked(Trainer& trainer, int64_t epoch) {
  std::optional<double> score;
  if (!options_.monitor.empty()) {
    score = trainer.accelerator().from_main(trainer.monitored(options_.monitor));
  }
  save(trainer, epoch, score);
}

std::string ModelCheckpoint::file_name(const Trainer& trainer, int64_t epoch) const {
  std::string name = options_.filename;
  size_t open = 0;
  while ((open = name.find('{', open)) != std::string::npos) {
    const size_t close = name.find('}', open);
    LEVIN_CHECK(close != std::string::npos, "trainer.checkpoint.options",
                "got filename = '{}', wanted a '}}' for each '{{'", options_.filename);
    const std::string key = name.substr(open + 1, close - open - 1);
    std::string value = key + "=";
    if (key == "epoch") {
      value += std::to_string(epoch);
    } else if (key == "step") {
      value += std::to_string(trainer.global_step());
    } else {
      value += fmt::format("{:.4f}", trainer.monitored(key));
    }
    name.replace(open, close - open + 1, value);
    open += value.size();
  }
  return name;
}

bool ModelCheckpoint::ranks_before(const Saved& a, const Saved& b) const {
  if (options_.monitor.empty()) return a.step > b.step;
  const auto worth = [&](const Saved& saved) {
    if (!saved.score || std::isnan(*saved.score)) return -std::numeric_limits<double>::infinity();
    return options_.mode == "max" ? *saved.score : -*saved.score;
  };
  return worth(a) > worth(b);
}

std::vector<ModelCheckpoint::Saved> ModelCheckpoint::take_surplus(const std::string& newest) {
  std::stable_sort(kept_.begin(), kept_.end(),
                   [&](const Saved& a, const Saved& b) { return ranks_before(a, b); });
  std::vector<Saved> kept, surplus;
  for (Saved& saved : kept_) {
    const bool among_best =
        options_.save_top_k < 0 || static_cast<int64_t>(kept.size()) < options_.save_top_k;
    const bool is_last = options_.save_last && saved.folder == newest;
    (among_best || is_last ? kept : surplus).push_back(std::move(saved));
  }
  kept_ = std::move(kept);
  return surplus;
}

void ModelCheckpoint::save(Trainer& trainer, int64_t epoch, std::optional<double> score) {
  due_ = false;
  const bool is_main = trainer.accelerator().is_main_process();
  const std::string folder = (fs::path(folder_) / file_name(trainer, epoch)).string();
  // The list is brought up to date first, so that the checkpoint itself holds it.
  const std::vector<Saved> kept_before = kept_;
  std::erase_if(kept_, [&](const Saved& saved) { return saved.folder == folder; });
  kept_.push_back({folder, score, trainer.global_step()});
  const std::vector<Saved> surplus = take_surplus(folder);
  const bool useless = std::any_of(surplus.begin(), surplus.end(),
                                   [&](const Saved& saved) { return saved.folder == folder; });
  if (trainer.accelerator().from_main(useless)) {
    kept_ = kept_before;
    return;
  }
  try {
    trainer.save_checkpoint(folder);
    if (is_main) files::replace_link(fs::path(folder_) / "last", folder);
  } catch (const Error& error) {
    failed_ = true;
    kept_ = kept_before;
    fail(trainer.global_step(), error);
  }
  if (!options_.monitor.empty() || options_.save_top_k != 0) best_ = kept_.front();
  last_folder_ = folder;
  last_step_ = trainer.global_step();
  saved_at_ = std::chrono::steady_clock::now();
  for (const Saved& old : is_main ? surplus : std::vector<Saved>()) {
    std::error_code still_there;  // a folder that cannot be removed costs room and nothing else
    fs::remove_all(old.folder, still_there);
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
