#include <fmt/format.h>

#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

class ProgressBar : public Callback {
 public:
  /// Makes a progress bar.
  explicit ProgressBar(const ProgressOptions& options) : line_(options), evaluation_(options) {}

  std::string state_key() const override { return "progress_bar"; }
  void on_train_epoch_start(Trainer& trainer, Module& module) override;
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;
  void on_evaluation_start(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_evaluation_batch_start(Trainer& trainer, Module& module, std::string_view stage,
                                 const Batch& batch, int64_t batch_index) override;
  void on_evaluation_batch_end(Trainer& trainer, Module& module, std::string_view stage,
                               const Batch& batch, int64_t batch_index) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_end(Trainer& trainer, Module& module) override { end(); }
  void on_exception(Trainer& trainer, Module& module, const std::exception& error) override {
    end();
  }

 private:
  /// Clears the lines of a fit; the same callback may be used in an evaluation.
  void end() {
    line_.clear();
    evaluation_.clear();
    started_ = false;
  }

  ProgressLine line_;
  ProgressLine evaluation_;  // during an evaluation
  std::string evaluation_label_;
  bool started_ = false;
};

std::string epoch_label(const Trainer& trainer, int64_t epoch) {
  const auto last = trainer.options().max_epochs;
  return last && *last > 0 ? fmt::format("epoch {}/{}", epoch + 1, *last)
                           : fmt::format("epoch {}", epoch + 1);
}

std::string epoch_text(const std::string& label, const Metrics& metrics) {
  std::string text = label + ":";
  for (const auto& [name, value] : metrics) text += fmt::format(" {}={:.4g}", name, value);
  return text;
}

}  // namespace

void ProgressBar::on_train_epoch_start(Trainer& trainer, Module&) {
  started_ = trainer.accelerator().is_main_process();
  if (!started_) return;
  line_.start(epoch_label(trainer, trainer.current_epoch()), trainer.num_training_batches(),
              trainer.batches_done());
}

void ProgressBar::on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor&,
                                     const Batch&, int64_t) {
  if (!started_) on_train_epoch_start(trainer, module);  // resumed inside an epoch
  if (started_ && line_.advance()) line_.draw(trainer.progress_bar_metrics());
}

void ProgressBar::on_train_epoch_end(Trainer& trainer, Module&) {
  if (!started_) return;
  line_.end(trainer.progress_bar_metrics());
  line_.finish(
      epoch_text(epoch_label(trainer, trainer.current_epoch()), trainer.callback_metrics()));
}

void ProgressBar::on_evaluation_start(Trainer& trainer, Module&, std::string_view stage) {
  if (!trainer.accelerator().is_main_process()) return;
  const std::string name = stage == "validate" ? "validation" : std::string(stage);
  evaluation_label_ = trainer.sanity_checking() ? "sanity check"
                      : started_ ? epoch_label(trainer, trainer.current_epoch()) + " " + name
                                 : name;
}

void ProgressBar::on_evaluation_batch_start(Trainer& trainer, Module&, std::string_view,
                                            const Batch&, int64_t batch_index) {
  if (batch_index > 0 || !trainer.accelerator().is_main_process()) return;
  const std::vector<int64_t> batches = trainer.num_evaluation_batches();
  const int64_t loader = trainer.dataloader_index();
  evaluation_.start(batches.size() > 1 ? fmt::format("{} dataloader {}", evaluation_label_, loader)
                                       : evaluation_label_,
                    batches.at(static_cast<size_t>(loader)));
}

void ProgressBar::on_evaluation_batch_end(Trainer& trainer, Module&, std::string_view, const Batch&,
                                          int64_t) {
  if (trainer.accelerator().is_main_process() && evaluation_.advance()) {
    evaluation_.draw(trainer.progress_bar_metrics());
  }
}

void ProgressBar::on_evaluation_end(Trainer& trainer, Module&, std::string_view stage) {
  if (!trainer.accelerator().is_main_process()) return;
  evaluation_.end({});
  if (started_) line_.draw(trainer.progress_bar_metrics());
  if (started_ || trainer.sanity_checking()) return;
  if (stage != "predict") line_.finish(epoch_text(std::string(stage), trainer.callback_metrics()));
}

std::shared_ptr<Callback> progress_bar(ProgressOptions options) {
  return std::make_shared<ProgressBar>(options);
}

}  // namespace levin
