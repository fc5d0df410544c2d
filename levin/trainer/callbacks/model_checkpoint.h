#pragma once
// CheckpointKeeper: the ModelCheckpoint that model_checkpoint() returns. Not for users.
// model_checkpoint.cpp says when it saves, model_checkpoint_files.cpp where, and
// model_checkpoint_state.cpp what a later run knows of it.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/trainer/callbacks/callbacks.h"

namespace levin {

class CheckpointKeeper final : public ModelCheckpoint {
 public:
  explicit CheckpointKeeper(ModelCheckpointOptions options);

  const std::string& best_model_path() const override { return best_.folder; }
  std::optional<double> best_model_score() const override { return best_.score; }
  const std::string& last_model_path() const override { return last_folder_; }
  const std::string& monitor() const override { return options_.monitor; }

  std::string state_key() const override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  std::string checkpoint_folder() const override { return folder_; }

  void setup(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_start(Trainer& trainer, Module& module) override;
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;
  void on_train_end(Trainer& trainer, Module& module) override;
  void on_fit_end(Trainer& trainer, Module& module) override;
  void on_exception(Trainer& trainer, Module& module, const std::exception& error) override;
  void on_save_checkpoint(Trainer& trainer, Module& module, State& checkpoint) override;
  void on_load_checkpoint(Trainer& trainer, Module& module, const State& checkpoint) override;

 private:
  struct Saved {
    std::string folder;
    std::optional<double> score;  // none if nothing is monitored
    int64_t step = -1;
    bool by_rule = true;  // saved by every_n_..., not because a run ended
    bool own = false;     // this run has written it
  };

  struct Place {
    std::string folder;
    bool is_own = false;  // it holds a checkpoint of this run
  };

  /// State that a save changes, before the save.
  struct Lists {
    std::vector<Saved> kept;
    Saved best;
    std::string last;
  };

  static State state_of(const std::vector<Saved>& list);
  static std::vector<Saved> list_in(const State& state);
  void forget();  ///< Resets the state to that before any run.
  bool epoch_due(int64_t epoch) const;
  bool at_train_epoch_end(const Trainer& trainer) const;
  bool waits_for_validation(const Trainer& trainer) const;
  bool lacks_monitor(const Trainer& trainer) const;
  void warn_of_no_save(const Trainer& trainer) const;
  bool can_rank(Trainer& trainer, bool validation_may_tell);
  void warn_of_monitor(const Trainer& trainer, std::string_view so);
  std::optional<double> score(Trainer& trainer);
  void save_ranked(Trainer& trainer, int64_t epoch);
  void save(Trainer& trainer, int64_t epoch, std::optional<double> score, bool by_rule);
  /// Returns the folder name of a checkpoint, from `filename`.
  std::string file_name(const Trainer& trainer, int64_t epoch) const;
  bool is_ranked(const Saved& saved) const;
  bool ranks_before(const Saved& a, const Saved& b) const;
  /// Sorts kept_ by rank. Removes and returns the checkpoints that are neither among the best nor,
  /// with save_last, the newest. The newest has no folder yet: it has not been written.
  std::vector<Saved> take_surplus();
  void choose_best();
  bool keeps(const std::string& folder) const;
  /// Returns the folder in folder_ that has the last name of `path`, if it exists.
  std::optional<std::string> place_of(const std::string& path) const;
  bool may_replace(const std::string& folder, int64_t step) const;
  /// Returns whether this process (rank 0, or one per host) removes checkpoints and sets `last`.
  bool keeps_folder(const Trainer& trainer) const;
  Place choose_place(Trainer& trainer, int64_t epoch) const;
  bool write(Trainer& trainer, const Place& place, bool is_last_try);
  void write_behind(Trainer& trainer, const Place& place, const Lists& before);
  void link_newest(Trainer& trainer, const std::string& folder) const;
  /// Logs a save, if that is wanted.
  void tell_of_save(const Trainer& trainer, std::string_view outcome,
                    std::optional<double> score) const;
  void go_back_to(const Lists& before);
  void remove_surplus();
  [[noreturn]] void fail(int64_t step, const std::exception& error) const;

  ModelCheckpointOptions options_;
  std::string folder_;
  std::string run_;             // a name that no other run has
  std::vector<Saved> kept_;     // best first
  std::vector<Saved> surplus_;  // to be removed once the newest is on the disk
  Saved best_;
  std::string last_folder_;
  int64_t last_step_ = -1;   // global step of the newest checkpoint
  int64_t ranked_step_ = 0;  // global step of the newest ranked checkpoint
  bool due_ = false;         // true while a save waits for a window's end or a validation
  bool training_ = false;
  bool failed_ = false;
  bool is_saving_ = false;  // the checkpoint that is made is this callback's
  bool told_of_monitor_ = false;
  bool validated_ = false;  // in this fit
  std::chrono::steady_clock::time_point saved_at_;
};

}  // namespace levin
