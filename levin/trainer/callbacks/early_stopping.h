#pragma once
// EarlyStopping: ends the run when a value stops getting better; as Lightning's callback.
//
//   options.callbacks = {levin::early_stopping({.monitor = "val_loss", .patience = 5})};

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "levin/base/export.h"
#include "levin/module/callback.h"

namespace levin {

struct EarlyStoppingOptions {
  std::string monitor;       ///< name it was logged under
  double min_delta = 0.0;    ///< a smaller change is none
  int64_t patience = 3;      ///< checks without getting better before the run ends
  bool verbose = false;      ///< say at each check how it stands
  std::string mode = "min";  ///< min or max of monitor is best
  bool check_finite = true;  ///< end the run on NaN or infinity; else a NaN is no improvement
  std::optional<double> stopping_threshold = {};    ///< good enough: end the run
  std::optional<double> divergence_threshold = {};  ///< too bad: end the run
  /// Check at the end of each training epoch, else of each validation. Unset: of the epoch, unless
  /// there are several validations in one or epochs without (val_check_interval,
  /// check_val_every_n_epoch). At an epoch's end its own values are there beside its validation's.
  std::optional<bool> check_on_train_epoch_end = {};
};

/// Throws Error "trainer.monitor" when nothing of that name was logged, and
/// "trainer.early_stopping" for options that make no sense.
class LEVIN_API EarlyStopping : public Callback {
 public:
  explicit EarlyStopping(EarlyStoppingOptions options);

  /// Epoch the run was ended in, -1 when it was not.
  int64_t stopped_epoch() const { return stopped_epoch_; }
  double best_score() const { return best_; }
  const std::string& monitor() const { return options_.monitor; }

  std::string state_key() const override { return "early_stopping-" + options_.monitor; }
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  void on_train_start(Trainer& trainer, Module& module) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;

 private:
  bool at_train_epoch_end(const Trainer& trainer) const;
  void check(Trainer& trainer);
  /// Why the run should end at this value; empty when it should go on.
  std::string judge(double value);
  bool beats(double value, double other) const;

  EarlyStoppingOptions options_;
  double best_;
  int64_t waited_ = 0;
  int64_t stopped_epoch_ = -1;
};

LEVIN_API std::shared_ptr<EarlyStopping> early_stopping(EarlyStoppingOptions options);

}  // namespace levin
