// The state of a ModelCheckpoint, and the part of it that a later run may act upon.

#include <filesystem>
#include <random>

#include "levin/base/check.h"
#include "levin/trainer/callbacks/model_checkpoint.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLast = "last";

/// A name of a run, for its checkpoints to be told from another's.
std::string new_run() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

// Not a folder above, and no link to one elsewhere.
std::optional<std::string> CheckpointKeeper::place_of(const std::string& path) const {
  const std::string name = fs::path(path).filename().string();
  if (name.empty() || name == "." || name == ".." || name == kLast) return std::nullopt;
  std::error_code error;
  const fs::path place = fs::path(folder_) / name;
  const bool is_folder = fs::is_directory(fs::symlink_status(place, error));
  return is_folder ? std::optional(place.string()) : std::nullopt;
}

void CheckpointKeeper::forget() {
  kept_.clear();
  surplus_.clear();
  best_ = Saved();
  last_folder_.clear();
  run_ = new_run();
  last_step_ = -1;
  ranked_step_ = 0;
  due_ = failed_ = told_of_monitor_ = validated_ = false;
}

State CheckpointKeeper::state_of(const std::vector<Saved>& list) {
  State all;
  for (size_t i = 0; i < list.size(); ++i) {
    State one;
    one.set("folder", list[i].folder).set("step", list[i].step);
    one.set("by_rule", list[i].by_rule).set("own", list[i].own);
    if (list[i].score) one.set("score", *list[i].score);
    all.set(fmt::format("{:06}", i), std::move(one));
  }
  return all;
}

std::vector<CheckpointKeeper::Saved> CheckpointKeeper::list_in(const State& state) {
  std::vector<Saved> list;
  for (const auto& [index, value] : state.values()) {
    const State& one = state.child(index);
    Saved saved{one.text("folder"), std::nullopt, one.integer("step")};
    if (one.contains("score")) saved.score = one.number("score");
    if (one.contains("by_rule")) saved.by_rule = one.boolean("by_rule");
    saved.own = one.contains("own") && one.boolean("own");
    list.push_back(std::move(saved));
  }
  return list;
}

State CheckpointKeeper::state_dict() const {
  State state;
  return std::move(state.set("kept", state_of(kept_))
                       .set("surplus", state_of(surplus_))
                       .set("run", run_)
                       .set("best", best_.folder)
                       .set("last", last_folder_)
                       .set("ranked_step", ranked_step_)
                       .set("due", due_));
}

std::string ModelCheckpoint::best_model_path_in(const State& state) {
  return state.contains("best") ? state.text("best") : "";
}

void CheckpointKeeper::load_state_dict(const State& state) {
  kept_ = list_in(state.child("kept"));
  surplus_ = state.contains("surplus") ? list_in(state.child("surplus")) : std::vector<Saved>();
  choose_best();
  if (state.contains("run")) run_ = state.text("run");
  if (state.contains("last")) last_folder_ = state.text("last");
  if (state.contains("ranked_step")) ranked_step_ = state.integer("ranked_step");
  if (state.contains("due")) due_ = state.boolean("due");
}

// Lightning's save_weights_only keeps these too, but for the state of this callback, in which the
// best checkpoint is found.
void CheckpointKeeper::on_save_checkpoint(Trainer&, Module&, State& checkpoint) {
  if (!is_saving_ || !options_.save_weights_only) return;
  State kept;
  kept.set("weights_only", true);
  for (const char* name : {"levin", "progress", "options", "hparams", "user", "bases", "tied"}) {
    if (checkpoint.contains(name)) kept.set(name, checkpoint.values().find(name)->second);
  }
  State own;
  for (const auto& [name, value] : checkpoint.child("callbacks").values()) {
    // A writer's state is texts and numbers; that of others may be as large as the model.
    const State& state = checkpoint.child("callbacks").child(name);
    if (state.contains("run") && state.text("run") == run_) own.set(name, state);
  }
  kept.set("callbacks", std::move(own));
  checkpoint = std::move(kept);
}

// A checkpoint's state is untrusted, and it decides about files. This run manages the files of the
// run before only if it resumes from the newest checkpoint of its own folder. From anywhere else it
// is another run, which only ranks the checkpoints that are there.
void CheckpointKeeper::on_load_checkpoint(Trainer& trainer, Module&, const State&) {
  const fs::path from = trainer.resumed_from();
  std::error_code error;
  const bool goes_on = fs::equivalent(from, fs::path(folder_) / kLast, error) && !error;
  if (!goes_on) {
    run_ = new_run();
    surplus_.clear();
  }
  std::vector<Saved> kept;
  for (Saved& saved : kept_) {
    if (!goes_on || !saved.own) {
      saved.own = false;
      if (fs::exists(saved.folder, error)) kept.push_back(std::move(saved));
    } else if (const auto place = place_of(saved.folder)) {  // wherever the folder is by now
      saved.folder = *place;
      // A user who names a checkpoint wants to keep it.
      saved.own = from.filename() == kLast || !fs::equivalent(from, *place, error);
      kept.push_back(std::move(saved));
    }
  }
  kept_ = std::move(kept);
  choose_best();
  if (keeps_folder(trainer)) remove_surplus();
}

}  // namespace levin
