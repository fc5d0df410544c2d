// What a checkpoint of a run holds, and how a run goes on from one.

#include <torch/nn/module.h>

#include <filesystem>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/module/parameters.h"
#include "levin/trainer/run.h"

namespace levin::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVersion = "0.1.0";

std::optional<fs::path> newest(const std::vector<fs::path>& folders) {
  std::optional<fs::path> best;
  for (const fs::path& folder : folders) {
    const fs::path last = folder / "last";
    if (!fs::exists(last)) continue;
    if (!best || fs::last_write_time(last) > fs::last_write_time(*best)) best = last;
  }
  return best;
}

/// Every folder of checkpoints that runs under this root have written.
std::vector<fs::path> checkpoint_folders(const fs::path& root) {
  std::vector<fs::path> folders = {root / "checkpoints"};
  std::error_code none_there;
  for (const auto& entry : fs::directory_iterator(root / "levin_logs", none_there)) {
    folders.push_back(entry.path() / "checkpoints");
  }
  return folders;
}

/// Where a checkpoint really is, as short as it can be said.
std::string shown(const fs::path& folder) {
  const fs::path real = fs::weakly_canonical(folder);
  const std::string near = real.lexically_proximate(fs::current_path()).string();
  return near.starts_with("..") ? real.string() : near;
}

}  // namespace

Checkpoint Run::checkpoint() {
  Checkpoint checkpoint = accelerator_.state_dict();
  Progress progress = progress_;
  progress.seconds = seconds_trained();
  State callbacks;
  for (const auto& callback : callbacks_) {
    callbacks.set(callback->state_key(), callback->state_dict());
  }
  State metrics;
  for (const auto& [name, value] : metrics_) metrics.set(name, value);
  State options;
  for (const auto& [name, value] : options_as_text(options_)) options.set(name, value);
  State hparams;
  for (const auto& [name, value] : module_->hparams()) hparams.set(name, value);
  checkpoint.training.set("levin", kVersion)
      .set("progress", progress.state_dict())
      .set("callbacks", std::move(callbacks))
      .set("train_values", train_values_.state_dict())
      .set("metrics", std::move(metrics))
      .set("options", std::move(options))
      .set("hparams", std::move(hparams));
  if (accelerator_.rank().world_size > 1) {
    State others;  // rank 0's stand above, where one process finds its own
    const std::vector<State> ranks = accelerator_.gather_object(train_values_.state_dict());
    for (size_t i = 1; i < ranks.size(); ++i) others.set(std::to_string(i), ranks[i]);
    checkpoint.training.set("train_values_of_ranks", std::move(others));
  }
  if (data_module_) checkpoint.training.set("data", data_module_->state_dict());
  State user;
  module_->on_save_checkpoint(user);
  checkpoint.training.set("user", std::move(user));
  tell(watchers_, &Callback::on_save_checkpoint, checkpoint.training);
  tell(writers_, &Callback::on_save_checkpoint, checkpoint.training);
  return checkpoint;
}

std::optional<fs::path> Run::find_checkpoint(const std::string& ckpt_path) {
  State found;  // by rank 0, for all
  if (accelerator_.is_main_process()) {
    if (const auto folder = search_checkpoint(ckpt_path)) found.set("folder", folder->string());
  }
  found = accelerator_.broadcast_object(found);
  if (found.empty()) return std::nullopt;
  return found.text("folder");
}

std::optional<fs::path> Run::search_checkpoint(const std::string& ckpt_path) const {
  if (ckpt_path != "last") return ckpt_path;
  std::vector<fs::path> folders = checkpoint_folders(options_.default_root_dir);
  for (const auto& callback : options_.callbacks) {
    const std::string folder = callback->checkpoint_folder();
    if (!folder.empty()) folders.emplace_back(folder);
  }
  return newest(folders);
}

bool Run::resume(const std::string& ckpt_path) {
  if (ckpt_path.empty()) return false;
  const std::optional<fs::path> folder = find_checkpoint(ckpt_path);
  if (!folder) {
    log::info("trainer: no checkpoint under '{}' yet, so training starts anew",
              options_.default_root_dir);
    return false;
  }
  load(load_checkpoint(*folder));
  log::info("trainer: resumed from '{}' at epoch {}, step {}", shown(*folder), progress_.epoch,
            progress_.global_step);
  return true;
}

void Run::load_weights() {
  if (weights_from_.empty()) return;
  const std::optional<fs::path> folder = find_checkpoint(weights_from_);
  LEVIN_CHECK(folder.has_value(), "trainer.ckpt_path",
              "no checkpoint under '{}'; train first, or name one by --ckpt-path",
              options_.default_root_dir);
  load_module_state(*module_, levin::load_weights(*folder));
  log::info("trainer: weights are those of '{}'", shown(*folder));
}

// With another number of ranks the first takes up what all have logged.
void Run::load_train_values(const State& training) {
  const State others = training.contains("train_values_of_ranks")
                           ? training.child("train_values_of_ranks")
                           : State();
  const RankInfo rank = accelerator_.rank();
  const bool same = std::ssize(others.values()) == rank.world_size - 1;
  if (rank.rank == 0) {
    train_values_.load_state_dict(training.child("train_values"));
    for (size_t i = 1; !same && i <= others.values().size(); ++i) {
      train_values_.merge(others.child(std::to_string(i)));
    }
  } else if (same) {
    train_values_.load_state_dict(others.child(std::to_string(rank.rank)));
  }
}

void Run::load(const Checkpoint& checkpoint) {
  const State& training = checkpoint.training;
  accelerator_.load_state_dict(checkpoint);
  progress_.load_state_dict(training.child("progress"));
  load_train_values(training);
  for (const auto& [name, value] : training.child("metrics").values()) {
    metrics_[name] = training.child("metrics").number(name);
  }
  const State& callbacks = training.child("callbacks");
  for (const auto& callback : callbacks_) {
    if (callbacks.contains(callback->state_key())) {
      callback->load_state_dict(callbacks.child(callback->state_key()));
    } else {
      log::warn("trainer: the checkpoint has no state of callback {}, which starts anew",
                callback->state_key());
    }
  }
  if (data_module_ && training.contains("data")) {
    data_module_->load_state_dict(training.child("data"));
  }
  module_->on_load_checkpoint(training.child("user"));
  tell(watchers_, &Callback::on_load_checkpoint, training);
  tell(writers_, &Callback::on_load_checkpoint, training);
}

}  // namespace levin::detail
