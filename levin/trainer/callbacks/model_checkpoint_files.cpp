// The files of a ModelCheckpoint: where it writes them, which it keeps, and which it removes.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/files/atomic.h"
#include "levin/trainer/callbacks/checkpoint_name.h"
#include "levin/trainer/callbacks/model_checkpoint.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

/// Sets a flag for the time of a scope.
class Saving {
 public:
  explicit Saving(bool& flag) : flag_(flag) { flag_ = true; }
  ~Saving() { flag_ = false; }
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;

 private:
  bool& flag_;
};

}  // namespace

std::string CheckpointKeeper::file_name(const Trainer& trainer, int64_t epoch) const {
  return detail::checkpoint_name(options_.filename,
                                 {.epoch = epoch,
                                  .step = trainer.global_step(),
                                  .metrics = trainer.callback_metrics(),
                                  .insert_names = options_.auto_insert_metric_name});
}

bool CheckpointKeeper::is_ranked(const Saved& saved) const {
  return saved.by_rule && (options_.monitor.empty() || saved.score.has_value());
}

bool CheckpointKeeper::ranks_before(const Saved& a, const Saved& b) const {
  if (options_.monitor.empty()) return a.step > b.step;
  const auto worth = [&](const Saved& saved) {
    if (!saved.score || std::isnan(*saved.score)) return -std::numeric_limits<double>::infinity();
    return options_.mode == "max" ? *saved.score : -*saved.score;
  };
  return worth(a) > worth(b);
}

std::vector<CheckpointKeeper::Saved> CheckpointKeeper::take_surplus() {
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

void CheckpointKeeper::choose_best() {
  const auto best = std::find_if(kept_.begin(), kept_.end(),
                                 [&](const Saved& saved) { return is_ranked(saved); });
  best_ = best == kept_.end() || options_.save_top_k == 0 ? Saved() : *best;
}

bool CheckpointKeeper::keeps(const std::string& folder) const {
  return std::ranges::any_of(kept_, [&](const Saved& saved) { return saved.folder == folder; });
}

// Returns whether the folder is to be removed anyway, or is of the step that is saved now: this run
// wrote it before it was killed between the checkpoint and the link to it.
bool CheckpointKeeper::may_replace(const std::string& folder, int64_t step) const {
  const auto is_it = [&](const Saved& saved) { return saved.own && saved.folder == folder; };
  if (std::ranges::any_of(surplus_, is_it)) return true;
  try {
    const State training = CheckpointReader(folder).training_scalars();
    const State& callbacks = training.child("callbacks");
    return training.child("progress").integer("global_step") == step &&
           std::ranges::any_of(callbacks.values(), [&](const auto& entry) {
             // The folder has all callbacks of the run; its writer has it as its newest.
             const State& one = callbacks.child(entry.first);
             return one.contains("run") && one.text("run") == run_ &&
                    fs::path(one.text("last")).filename() == fs::path(folder).filename();
           });
  } catch (const Error&) {
    return false;
  }
}

bool CheckpointKeeper::keeps_folder(const Trainer& trainer) const {
  const Accelerator& accelerator = trainer.accelerator();
  return options_.save_on_each_node ? accelerator.is_local_main_process()
                                    : accelerator.is_main_process();
}

// Chooses a name on rank 0 that does not exist yet on any host, so that nothing else is
// overwritten.
CheckpointKeeper::Place CheckpointKeeper::choose_place(Trainer& trainer, int64_t epoch) const {
  Accelerator& accelerator = trainer.accelerator();
  State chosen;
  accelerator.all_or_throw([&] {
    if (!accelerator.is_main_process()) return;
    chosen.set("folder", (fs::path(folder_) / file_name(trainer, epoch)).string());
  });
  const std::string wanted = accelerator.broadcast_object(chosen).text("folder");
  Place place{wanted};
  for (int64_t version = 1;; ++version) {
    const bool taken_here = keeps_folder(trainer) && is_there(place.folder);
    if (!accelerator.any(taken_here)) return place;
    if (!options_.enable_version_counter) {
      place.is_own = true;  // only a checkpoint can be replaced
      return place;
    }
    const bool stays = taken_here && !may_replace(place.folder, trainer.global_step());
    place.is_own = !accelerator.any(stays);
    if (place.is_own) return place;
    place.folder = fmt::format("{}-v{}", wanted, version);
  }
}

void CheckpointKeeper::save(Trainer& trainer, int64_t epoch, std::optional<double> score,
                            bool by_rule) {
  trainer.accelerator().finish_saves();  // by their own rules, before these lists change
  const int64_t step = trainer.global_step();
  // The list is brought up to date first, so that the checkpoint itself holds it.
  const Lists before{kept_, best_, last_folder_};
  constexpr int kMostTries = 100;
  for (int tries = 1;; ++tries) {
    kept_.push_back({"", score, step, by_rule, /*own=*/true});
    surplus_ = take_surplus();
    const bool useless = std::ranges::any_of(surplus_, &std::string::empty, &Saved::folder);
    if (trainer.accelerator().from_main(useless)) {
      tell_of_save(trainer, fmt::format("not among the best {}", options_.save_top_k), score);
      kept_ = before.kept;
      surplus_.clear();
      return;
    }
    const Place place = choose_place(trainer, epoch);
    const auto is_there_now = [&](const Saved& one) { return one.folder == place.folder; };
    std::erase_if(kept_, is_there_now);
    std::erase_if(surplus_, is_there_now);
    const auto own = std::ranges::find(kept_, "", &Saved::folder);
    if (own != kept_.end()) own->folder = place.folder;
    last_folder_ = place.folder;
    choose_best();
    last_step_ = step;
    saved_at_ = std::chrono::steady_clock::now();
    try {
      if (options_.async_save && training_) return write_behind(trainer, place, before);
      if (write(trainer, place, tries == kMostTries)) {
        tell_of_save(trainer, "saved in " + place.folder, score);
        break;
      }
      kept_ = before.kept;
    } catch (const std::exception& error) {
      go_back_to(before);
      fail(step, error);
    }
  }
  if (keeps_folder(trainer)) remove_surplus();
}

void CheckpointKeeper::tell_of_save(const Trainer& trainer, std::string_view outcome,
                                    std::optional<double> score) const {
  if (!options_.verbose) return;
  std::string value;
  if (score) {
    value = fmt::format(" with {} = {:.5g} (best {:.5g})", options_.monitor, *score,
                        best_.score.value_or(*score));
  }
  log::info("model_checkpoint: epoch {}, step {}{}: {}", trainer.current_epoch(),
            trainer.global_step(), value, outcome);
}

void CheckpointKeeper::go_back_to(const Lists& before) {
  failed_ = true;
  kept_ = before.kept;
  surplus_.clear();
  best_ = before.best;
  last_folder_ = before.last;
}

// False where another program has taken the name meanwhile.
bool CheckpointKeeper::write(Trainer& trainer, const Place& place, bool is_last_try) {
  try {
    const Saving saving(is_saving_);
    trainer.save_checkpoint(
        place.folder, {.replace = place.is_own, .save_on_each_node = options_.save_on_each_node});
  } catch (const Error& error) {
    if (error.id() == "files.replace" && !place.is_own && !is_last_try) return false;
    throw;
  }
  link_newest(trainer, place.folder);
  return true;
}

// The link and the removal come once it is there, which a later step finds out.
void CheckpointKeeper::write_behind(Trainer& trainer, const Place& place, const Lists& before) {
  const auto then = [this, &trainer, place, before,
                     step = last_step_](const std::exception_ptr& failure) {
    try {
      if (failure) std::rethrow_exception(failure);
      link_newest(trainer, place.folder);
    } catch (const std::exception& error) {
      go_back_to(before);
      fail(step, error);
    }
    if (options_.verbose) log::info("model_checkpoint: step {} is saved in {}", step, place.folder);
    if (keeps_folder(trainer)) remove_surplus();
  };
  const Saving saving(is_saving_);
  trainer.save_checkpoint(place.folder,
                          {.replace = place.is_own,
                           .save_on_each_node = options_.save_on_each_node,
                           .async_save = true},
                          then);
}

void CheckpointKeeper::link_newest(Trainer& trainer, const std::string& folder) const {
  Accelerator& accelerator = trainer.accelerator();
  accelerator.all_or_throw([&] {
    if (keeps_folder(trainer)) files::replace_link(fs::path(folder_) / "last", folder);
  });
  if (!accelerator.is_main_process()) return;
  for (const auto& logger : trainer.loggers()) logger->after_save_checkpoint(folder);
}

// Removes only folders that this run has written in its own folder and that still are checkpoints.
void CheckpointKeeper::remove_surplus() {
  for (const Saved& old : surplus_) {
    const auto place = place_of(old.folder);
    if (!old.own || !place || keeps(*place)) continue;
    try {
      remove_checkpoint(*place);
    } catch (const Error& error) {  // costs room and nothing else
      log::warn("model_checkpoint: could not remove {}: {}", *place, error.text());
    }
  }
  surplus_.clear();
}

void CheckpointKeeper::fail(int64_t step, const std::exception& error) const {
  const std::string before = last_folder_.empty() ? "this run has no earlier checkpoint"
                                                  : fmt::format(
                                                        "the previous checkpoint is complete: free "
                                                        "disk space and resume with --ckpt-path {}",
                                                        last_folder_);
  // The rank is left out: all ranks say the same.
  const auto* own = dynamic_cast<const Error*>(&error);
  const std::string why = own == nullptr ? error.what() : own->id() + ": " + own->text();
  LEVIN_FAIL("trainer.checkpoint", "step {} could not be saved ({}); {}", step, why, before);
}

}  // namespace levin
