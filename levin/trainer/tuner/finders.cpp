// The callbacks that search before a fit.

#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/trainer/tuner/trial.h"

namespace levin {

LearningRateFinder::LearningRateFinder(LrFindOptions options) : options_(std::move(options)) {
  detail::check_options(options_);
}

std::shared_ptr<LearningRateFinder> learning_rate_finder(LrFindOptions options) {
  return std::make_shared<LearningRateFinder>(std::move(options));
}

BatchSizeFinder::BatchSizeFinder(ScaleBatchSizeOptions options) : options_(std::move(options)) {
  detail::check_options(options_);
}

std::shared_ptr<BatchSizeFinder> batch_size_finder(ScaleBatchSizeOptions options) {
  return std::make_shared<BatchSizeFinder>(std::move(options));
}

void LrFindOptions::fields(FieldVisitor& field) {
  field("lr_find_min_lr", min_lr, "first learning rate of the search");
  field("lr_find_max_lr", max_lr, "last learning rate of the search");
  field("lr_find_num_training", num_training, "steps of the search");
  field("lr_find_mode", mode, "growth of the rate: exponential or linear");
  field("lr_find_early_stop_threshold", early_stop_threshold,
        "stop at a loss of so many times the best one; none: never");
}

namespace detail {

// In the order of the list, so that a rate is searched with the batch size found before it. A
// checkpoint has the rates of its optimizer, and replaces those of a search.
Run::ChangeOptimizers Trial::run_finders(Trainer& trainer, const std::shared_ptr<Module>& module,
                                         DataLoader& loader,
                                         const std::shared_ptr<DataModule>& data,
                                         const std::string& ckpt_path) {
  Run::ChangeOptimizers change;
  const auto callbacks = trainer.options().callbacks;  // a trial replaces the Trainer's options
  for (const auto& callback : callbacks) {
    if (auto* size = dynamic_cast<BatchSizeFinder*>(callback.get())) {
      LEVIN_CHECK(trainer.options().reload_dataloaders_every_n_epochs == 0,
                  "trainer.scale_batch_size",
                  "got batch_size_finder with reload_dataloaders_every_n_epochs = {}, whose new "
                  "loaders have their own batch size; leave one of them out",
                  trainer.options().reload_dataloaders_every_n_epochs);
      size->optimal_batch_size_ = find_batch_size(trainer, {module, loader, data}, size->options());
      loader = with_batch_size(loader, *size->optimal_batch_size_);
    } else if (auto* rate = dynamic_cast<LearningRateFinder*>(callback.get())) {
      const bool resumes =
          !ckpt_path.empty() && trainer.begin(module, Stage::kFit).finds_checkpoint(ckpt_path);
      if (resumes) {
        log::info("trainer: no learning rate is searched, since the checkpoint has one");
        continue;
      }
      rate->optimal_lr_ = find_learning_rate(trainer, {module, loader, data}, rate->options());
      if (const std::optional<double> lr = rate->optimal_lr_->suggestion()) {
        change = [lr](std::vector<OptimizerConfig>& configs) { set_learning_rate(configs, *lr); };
      }
    }
  }
  return change;
}

}  // namespace detail
}  // namespace levin
