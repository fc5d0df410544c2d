// Saves the state of a run to a checkpoint, and resumes a run from one.

#include <torch/nn/module.h>

#include <filesystem>
#include <ranges>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/files/folder.h"
#include "levin/module/base.h"
#include "levin/module/parameters.h"
#include "levin/shard/sharded_tensor.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/run.h"
#include "levin/trainer/run/checkpoint_search.h"
#include "levin/trainer/trainer.h"

namespace levin::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char kNoBest[] =
    "got 'best', but the newest run under '{}' has ranked no checkpoint (there is none, or its "
    "model_checkpoint had another monitor or save_top_k = 0); name a folder, or 'last'";

std::optional<fs::path> newest(const std::vector<fs::path>& folders) {
  std::optional<fs::path> best;
  fs::file_time_type best_time;
  for (const fs::path& folder : folders) {
    const fs::path last = folder / "last";
    std::error_code none_there;
    const fs::file_time_type time = fs::last_write_time(last, none_there);
    if (none_there || (best && time <= best_time)) continue;
    best = last;
    best_time = time;
  }
  return best;
}

/// Every folder of checkpoints that runs under this root have written.
std::vector<fs::path> checkpoint_folders(const fs::path& root) {
  std::vector<fs::path> folders = {root / "checkpoints"};
  for (const fs::path& run : files::entries_of(root / "levin_logs")) {
    folders.push_back(run / "checkpoints");
  }
  return folders;
}

/// The best checkpoint of the run that has written this one, as its model_checkpoint ranked them:
/// the first of the callbacks, else the one that the trainer adds by itself. Looked for beside the
/// given one, wherever the folder is by now.
std::optional<fs::path> best_known_to(const fs::path& last,
                                      const std::vector<std::shared_ptr<Callback>>& callbacks) {
  std::string key = model_checkpoint()->state_key();
  for (const auto& callback : callbacks | std::views::reverse) {
    if (callback->writes_checkpoints()) key = callback->state_key();
  }
  const State states = CheckpointReader(last).training_scalars().child("callbacks");
  if (!states.contains(key)) return std::nullopt;
  const fs::path best = ModelCheckpoint::best_model_path_in(states.child(key));
  if (best.empty()) return std::nullopt;
  std::error_code error;
  const fs::path beside = fs::weakly_canonical(last, error).parent_path() / best.filename();
  return fs::exists(beside, error) ? beside : best;
}

/// Returns the real path of a checkpoint, in its shortest form.
std::string shown(const fs::path& folder) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(folder, error);
  if (error) return folder.string();
  const std::string near = real.lexically_proximate(fs::current_path(error)).string();
  return near.starts_with("..") ? real.string() : near;
}

}  // namespace

/// Returns the options of the run and the hyper-parameters of module and data, for the loggers.
std::map<std::string, std::string> Run::hyper_parameters() const {
  std::map<std::string, std::string> own = module_->hparams();
  if (data_module_) {
    for (const auto& [name, value] : data_module_->hparams()) {
      const std::string& other = own.emplace(name, value).first->second;
      LEVIN_CHECK(other == value, "trainer.hparams",
                  "the hyper-parameter '{}' is {} for the module and {} for the data module; give "
                  "them different names or the same value",
                  name, other, value);
    }
  }
  std::map<std::string, std::string> record = options_as_text(options_);
  record.merge(own);
  record.insert(options_.hparams.begin(), options_.hparams.end());
  return record;
}

Checkpoint Run::checkpoint() {
  Checkpoint checkpoint = engine_.state_dict();
  Progress progress = progress_;
  progress.seconds = seconds_trained();
  State callbacks;
  engine_.all_or_throw([&] { callbacks = listeners_.state_dict(); });
  State metrics;
  for (const auto& [name, value] : log_.metrics_before_step()) metrics.set(name, value);
  State options;
  for (const auto& [name, value] : options_as_text(options_)) options.set(name, value);
  State loggers;
  for (size_t i = 0; i < log_.loggers().size(); ++i) {
    loggers.set(std::to_string(i), log_.loggers()[i]->state_dict());
  }
  State hparams;
  for (const auto& [name, value] : module_->hparams()) hparams.set(name, value);
  State data_hparams;
  if (data_module_) {
    for (const auto& [name, value] : data_module_->hparams()) data_hparams.set(name, value);
  }
  checkpoint.training.set("levin", kVersion)
      .set("progress", progress.state_dict())
      .set("callbacks", std::move(callbacks))
      .set("train_values", log_.train_values().state_dict())
      .set("epoch_values", log_.epoch_values().state_dict())
      .set("waiting_gradients", waiting_gradients())
      .set("metrics", std::move(metrics))
      .set("options", std::move(options))
      .set("loggers", std::move(loggers))
      .set("hparams", std::move(hparams))
      .set("data_hparams", std::move(data_hparams));
  // Rank 0's stand above, where one process finds its own.
  for (const auto& [name, values] : {std::pair("train_values_of_ranks", &log_.train_values()),
                                     std::pair("epoch_values_of_ranks", &log_.epoch_values())}) {
    if (engine_.rank().world_size == 1) break;
    State others;
    const std::vector<State> ranks = engine_.gather_object(values->state_dict());
    for (size_t i = 1; i < ranks.size(); ++i) others.set(std::to_string(i), ranks[i]);
    checkpoint.training.set(name, std::move(others));
  }
  engine_.all_or_throw([&] {
    if (data_module_) checkpoint.training.set("data", data_module_->state_dict());
    State user;
    module_->on_save_checkpoint(user);
    checkpoint.training.set("user", std::move(user));
    listeners_.tell(&Callback::on_save_weights, checkpoint.weights.at("model"));
    listeners_.tell(&Callback::on_save_checkpoint, checkpoint.training);
  });
  return checkpoint;
}

void Run::find_checkpoint(const std::string& ckpt_path) {
  if (ckpt_path.empty()) return;
  State found;  // by rank 0, for all
  engine_.all_or_throw([&] {
    if (!engine_.is_main_process()) return;
    if (const auto folder = search_checkpoint(ckpt_path)) found.set("folder", folder->string());
  });
  found = engine_.broadcast_object(found);
  if (!found.empty()) checkpoint_ = found.text("folder");
  LEVIN_CHECK(checkpoint_ || ckpt_path != "best", "trainer.ckpt_path", kNoBest,
              options_.default_root_dir);
  LEVIN_CHECK(checkpoint_ || stage_ == Stage::kFit, "trainer.ckpt_path",
              "found no checkpoint under '{}'; train first, or name one with --ckpt-path",
              options_.default_root_dir);
  if (checkpoint_) return;
  log::info("trainer: found no checkpoint under '{}', so training starts from the beginning",
            options_.default_root_dir);
}

bool Run::finds_checkpoint(const std::string& ckpt_path) {
  find_checkpoint(ckpt_path);
  return checkpoint_.has_value();
}

std::optional<fs::path> Run::search_checkpoint(const std::string& ckpt_path) const {
  return detail::search_checkpoint(trainer_, ckpt_path, given_callbacks_);
}

std::optional<fs::path> search_checkpoint(Trainer& trainer, const std::string& ckpt_path,
                                          const std::vector<std::shared_ptr<Callback>>& callbacks) {
  if (ckpt_path != "last" && ckpt_path != "best") return ckpt_path;
  std::vector<fs::path> folders = checkpoint_folders(trainer.options().default_root_dir);
  for (const auto& logger : trainer.loggers()) {
    for (const std::string& folder : logger->known_dirs()) {
      folders.push_back(fs::path(folder) / "checkpoints");
    }
  }
  for (const auto& callback : callbacks) {
    const std::string folder = callback->checkpoint_folder();
    if (!folder.empty()) folders.emplace_back(folder);
  }
  const std::optional<fs::path> last = newest(folders);
  return last && ckpt_path == "best" ? best_known_to(*last, callbacks) : last;
}

// Called before anything is logged, and before anybody asks for the log folder. A checkpoint that
// cannot be read throws later.
void Run::resume_logs() {
  const auto& loggers = log_.loggers();
  if (stage_ != Stage::kFit || !checkpoint_ || !options_.resume_in_place || loggers.empty()) return;
  State training;
  try {
    training = CheckpointReader(*checkpoint_).training_scalars();
    if (!training.contains("loggers")) return;
    const State& states = training.child("loggers");
    const int64_t step = training.child("progress").integer("global_step");
    bool all = true;
    for (size_t i = 0; i < loggers.size(); ++i) {
      const std::string place = std::to_string(i);
      if (!states.contains(place) || states.child(place).empty()) continue;
      const bool goes_on = loggers[i]->resume(states.child(place), step);
      if (i == 0) resumed_in_place_ = goes_on;
      all = all && goes_on;
    }
    if (!all) {
      log::info(
          "trainer: the logs of the run that wrote the checkpoint are missing or belong to another "
          "run, so this run logs to a new folder");
    }
  } catch (const Error& error) {
    log::warn("trainer: the logs from before the checkpoint are kept unchanged: {}", error.text());
  }
}

bool Run::resume() {
  if (!checkpoint_) return false;
  Checkpoint checkpoint;
  engine_.all_or_throw([&] { checkpoint = engine_.read_checkpoint(*checkpoint_); });
  resumed_from_ = checkpoint_->string();
  loading_ = fmt::format("resuming from '{}'", shown(*checkpoint_));
  load(checkpoint);
  loading_.clear();
  log::info("trainer: resumed from '{}' at epoch {}, step {}", shown(*checkpoint_), progress_.epoch,
            progress_.global_step);
  return true;
}

void Run::load_weights() {
  if (checkpoint_) load_weights_of(*checkpoint_);
}

void Run::load_weights_of(const fs::path& checkpoint) {
  loading_ = fmt::format("weights of '{}'", shown(checkpoint));
  State weights;
  engine_.all_or_throw([&] {
    weights = levin::load_weights(checkpoint);
    if (!is_checkpoint(checkpoint)) return;
    const State training = CheckpointReader(checkpoint).training_scalars();
    if (training.contains("bases")) check_bases(*module_, training.child("bases").child("0"));
  });
  load_module_state(*module_, weights);
  loading_.clear();
  log::info("trainer: loaded the weights of '{}'", shown(checkpoint));
}

// With another number of ranks the first rank takes the values of all.
void Run::load_values(const State& training, const std::string& name, LoggedValues& values) {
  if (!training.contains(name)) return;
  const std::string of_ranks = name + "_of_ranks";
  const State others = training.contains(of_ranks) ? training.child(of_ranks) : State();
  const RankInfo rank = engine_.rank();
  const bool same = std::ssize(others.values()) == rank.world_size - 1;
  if (rank.rank == 0) {
    values.load_state_dict(training.child(name));
    for (size_t i = 1; !same && i <= others.values().size(); ++i) {
      values.merge(others.child(std::to_string(i)));
    }
  } else if (same) {
    values.load_state_dict(others.child(std::to_string(rank.rank)));
  }
}

// The loader counts samples, which do not change with the number of ranks or the batch size.
// Batches are counted anew for this run, and its accumulation windows begin at the resumed place.
void Run::take_up_place() {
  if (!progress_.in_epoch) return;
  const int64_t before = progress_.batch;
  progress_.batch = std::min(training_batches_done(), limits_.train_batches);
  limits_.windows_from = progress_.batch;
  if (before == progress_.batch) return;
  progress_.validated = before == 0 ? 0 : progress_.validated * progress_.batch / before;
  log::info(
      "trainer: the checkpoint had read {} batches of this epoch, which is {} batches in this run",
      before, progress_.batch);
}

// Returns the gradients of optimizers that do not step after each training step, by optimizer and
// parameter.
State Run::waiting_gradients() {
  State all;
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    if (progress_.global_step % optimizers_[i].frequency() == 0) continue;
    engine_.strategy().wait_gradients();
    State own;
    for (const NamedTensor& parameter : optimizers_[i].optimizer().parameters()) {
      const at::Tensor& gradient = parameter.tensor.mutable_grad();
      if (!gradient.defined()) continue;
      own.set(parameter.name, shard::state_value(parameter.tensor, gradient));
    }
    all.set(std::to_string(i), std::move(own));
  }
  return all;
}

void Run::load_waiting_gradients(const State& state) {
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    if (!state.contains(std::to_string(i))) continue;
    const State& own = state.child(std::to_string(i));
    for (const NamedTensor& parameter : optimizers_[i].optimizer().parameters()) {
      if (!own.contains(parameter.name)) continue;
      const State::Value& saved = own.tensor_or_slice(parameter.name);
      const std::string other = shard::difference(parameter.tensor, saved);
      LEVIN_CHECK(other.empty(), "trainer.checkpoint",
                  "the checkpoint's gradient of {} has a wrong shape: {}", parameter.name, other);
      parameter.tensor.mutable_grad() = shard::own_part(parameter.tensor, saved)
                                            .to(parameter.tensor.options(),
                                                /*non_blocking=*/false, /*copy=*/true);
    }
  }
}

void Run::load(const Checkpoint& checkpoint) {
  const State& training = checkpoint.training;
  engine_.load_state_dict(checkpoint);
  progress_.load_state_dict(training.child("progress"));
  limits_.enter_epoch(progress_.epoch);
  take_up_place();
  load_values(training, "train_values", log_.train_values());
  load_values(training, "epoch_values", log_.epoch_values());
  if (training.contains("waiting_gradients")) {
    load_waiting_gradients(training.child("waiting_gradients"));
  }
  for (const auto& [name, value] : training.child("metrics").values()) {
    log_.set_metric(name, training.child("metrics").number(name));
  }
  listeners_.load_state_dict(training.child("callbacks"));
  if (data_module_ && training.contains("data")) {
    data_module_->load_state_dict(training.child("data"));
  }
  module_->on_load_checkpoint(training.child("user"));
  listeners_.tell(&Callback::on_load_checkpoint, training);
}

}  // namespace levin::detail
