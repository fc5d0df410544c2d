#pragma once
// Trial: a short fit of a Tuner, of which nothing is left afterwards.
// Not for users.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/data/loader.h"
#include "levin/data/module.h"
#include "levin/module/module.h"
#include "levin/trainer/run.h"
#include "levin/trainer/trainer.h"
#include "levin/trainer/tuner/trial_state.h"

namespace levin::detail {

/// The one callback of a trial. It notes the module when it is prepared, and puts it back at the
/// end, or after an exception, while it still is.
class TrialListener : public Callback {
 public:
  std::string state_key() const override { return "trial"; }
  void setup(Trainer&, Module& module, std::string_view stage) override;
  void on_fit_end(Trainer&, Module& module) override { state_.restore(module); }
  void on_exception(Trainer&, Module& module, const std::exception&) override {
    state_.restore(module);
  }
  /// Puts the random generators where they were before the first batch, once the run has ended.
  void restore_random() const;

 private:
  TrialState state_;
  State random_;
};

/// The arguments of fit, for which a search looks.
struct Tuned {
  std::shared_ptr<Module> module;
  DataLoader loader;
  std::shared_ptr<DataModule> data;  ///< may be null
};

/// Has the Trainer's private parts; it is its friend.
class Trial {
 public:
  struct Setting {
    int64_t max_steps = 1;  ///< optimizer steps
    std::shared_ptr<TrialListener> listener = std::make_shared<TrialListener>();
    Run::ChangeOptimizers change_optimizers = {};
    /// The trial may run out of memory, and returns false then.
    bool tries_memory = false;
  };
  /// Trains with a copy of the loader. Returns false if it ran out of memory on some rank. A signal
  /// that ended it ends the program, if the Trainer's options say so. Throws the errors of fit.
  static bool run(Trainer& trainer, const Tuned& tuned, const Setting& setting);

  /// Returns whether the Trainer does not search at all, which is logged: in a fast_dev_run, and
  /// when a module is exported.
  static bool skips(const Trainer& trainer, std::string_view what);
  /// Does the searches of the Trainer's callbacks, before a fit. It replaces the loader by one with
  /// the batch size that was found. Returns what to do with the descriptions of the optimizers, or
  /// nothing.
  static Run::ChangeOptimizers run_finders(Trainer& trainer, const std::shared_ptr<Module>& module,
                                           DataLoader& loader,
                                           const std::shared_ptr<DataModule>& data,
                                           const std::string& ckpt_path);
};

// The two searches, for the Tuner and for the callbacks.

/// Throws Error "trainer.lr_find" for options out of range.
void check_options(const LrFindOptions& options);
LrFinder find_learning_rate(Trainer& trainer, const Tuned& tuned, const LrFindOptions& options);
/// Gives the one optimizer, and all its parameter groups, a learning rate.
void set_learning_rate(std::vector<OptimizerConfig>& configs, double lr);

/// Throws Error "trainer.scale_batch_size" for options out of range.
void check_options(const ScaleBatchSizeOptions& options);
int64_t find_batch_size(Trainer& trainer, const Tuned& tuned, const ScaleBatchSizeOptions& options);
/// Returns a loader of the same data in the same order, with another batch size.
DataLoader with_batch_size(const DataLoader& loader, int64_t batch_size);

}  // namespace levin::detail
