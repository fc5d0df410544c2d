#include "levin/trainer/tuner/trial.h"

#include <torch/nn/module.h>

#include <utility>

#include "levin/accelerator/stepping/out_of_memory.h"
#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/random.h"
#include "levin/comm/objects.h"
#include "levin/trainer/callbacks/export_program.h"

namespace levin::detail {
namespace {

/// Options under which a trial leaves nothing behind.
TrainerOptions for_trial(TrainerOptions options, const Trial::Setting& setting) {
  options.logger = false;
  options.callbacks = {setting.listener};
  options.max_steps = setting.max_steps;
  if (setting.tries_memory) options.max_epochs.reset();
  options.min_epochs = options.min_steps = 0;
  options.max_time.clear();
  options.enable_checkpointing = false;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.ckpt_path.clear();
  options.seed.reset();  // it has been set; the fit itself says what came before it
  options.reload_dataloaders_every_n_epochs = 0;
  options.profiler.clear();
  // A rate that is too high gives NaN losses, and there is no checkpoint to go back to.
  LossGuardOptions& guard = options.engine.loss_guard;
  for (std::string* policy : {&guard.nan_policy, &guard.spike_policy}) {
    if (*policy == "rollback") *policy = "skip";
  }
  return options;
}

/// Gradients of the module outside of a fit, which drops them.
class GradientsAside {
 public:
  explicit GradientsAside(const torch::nn::Module& module) {
    for (const at::Tensor& parameter : module.parameters()) {
      if (!parameter.grad().defined()) continue;
      gradients_.emplace_back(parameter, parameter.grad());
      parameter.mutable_grad().reset();
    }
  }
  ~GradientsAside() {
    for (const auto& [parameter, gradient] : gradients_) parameter.mutable_grad() = gradient;
  }
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;
};

/// The places of a data module, and of a sampler that the copy of a loader shares with it.
class DataAside {
 public:
  explicit DataAside(const Tuned& tuned) : loader_(tuned.loader), data_(tuned.data) {
    if (loader_.options().sampler != nullptr) place_ = loader_.state_dict();
    if (data_ == nullptr) return;
    const State state = data_->state_dict();
    if (!state.empty()) state_ = comm::bytes_of(state);
  }
  void restore() {
    if (!place_.empty()) loader_.load_state_dict(place_);
    if (state_.defined()) data_->load_state_dict(comm::state_of(state_));
  }

 private:
  DataLoader loader_;
  std::shared_ptr<DataModule> data_;
  State place_;
  at::Tensor state_;
};

template <class Restore>
class AtEnd {
 public:
  explicit AtEnd(Restore restore) : restore_(std::move(restore)) {}
  ~AtEnd() { restore_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  Restore restore_;
};

}  // namespace

// Layers that are built in configure_model have their values by now. The fit itself does not build
// them again, and draws no numbers for them.
void TrialListener::setup(Trainer&, Module& module, std::string_view) {
  state_.note(module);
  random_ = random_state();
}

void TrialListener::restore_random() const {
  if (!random_.empty()) load_random_state(random_);
}

bool Trial::run(Trainer& trainer, const Tuned& tuned, const Setting& setting) {
  LEVIN_CHECK(tuned.module != nullptr, "trainer.module",
              "got an empty module pointer, wanted a module");
  trainer.check_idle("a Tuner");
  trainer.note_last_run();
  trainer.run_.reset();  // a run refers to the options
  DataAside data(tuned);
  const GradientsAside gradients(*tuned.module);
  TrainerOptions options = std::exchange(trainer.options_, for_trial(trainer.options_, setting));
  std::vector<std::shared_ptr<Logger>> loggers = std::exchange(trainer.loggers_, {});
  const std::optional<std::string> best = trainer.best_;
  const Progress trained = *trainer.trained_;
  const int interrupted = trainer.interrupted_;
  bool fits = true;
  int signal = 0;
  {
    const AtEnd restore([&] {
      trainer.run_.reset();
      trainer.options_ = std::move(options);
      trainer.loggers_ = std::move(loggers);
      trainer.best_ = best;
      *trainer.trained_ = trained;
      trainer.interrupted_ = interrupted;
      setting.listener->restore_random();
      data.restore();
    });
    Run& run = trainer.begin(tuned.module, Stage::kFit);
    run.change_optimizers(setting.change_optimizers);
    if (setting.tries_memory) run.expect_out_of_memory();
    const bool is_alone = trainer.accelerator().num_processes() == 1;
    try {
      if (is_alone || !setting.tries_memory) {
        run.fit(tuned.loader.copy(), {}, tuned.data, "");
      } else {
        fits = run.fits_alone(tuned.loader.copy(), tuned.data, setting.max_steps);
      }
    } catch (const std::exception& error) {
      if (!setting.tries_memory || !is_out_of_memory(error)) throw;
      fits = false;
    }
    run.forget_logged();
    signal = run.stopping().signal();
  }
  if (signal != 0) {
    trainer.interrupted_ = signal;
    trainer.end_by_signal();
  }
  return fits;
}

bool Trial::skips(const Trainer& trainer, std::string_view what) {
  if (export_request()) return true;
  if (trainer.options().fast_dev_run == 0) return false;
  log::warn("trainer: {} is left out with fast_dev_run", what);
  return true;
}

}  // namespace levin::detail
