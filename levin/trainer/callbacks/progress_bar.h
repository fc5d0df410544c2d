#pragma once
// ProgressBar: the line on the terminal, and one plain line for each epoch. Where stderr is no terminal
// also a line a minute, with step, rate and values.
// The trainer adds it by itself unless enable_progress_bar = false.

#include <memory>
#include <string>

#include "levin/base/export.h"
#include "levin/module/callback.h"
#include "levin/observe/progress.h"

namespace levin {

/// On rank 0 only.
class LEVIN_API ProgressBar : public Callback {
 public:
  explicit ProgressBar(const ProgressOptions& options) : line_(options), evaluation_(options) {}

  std::string state_key() const override { return "progress_bar"; }
  void on_train_epoch_start(Trainer& trainer, Module& module) override;
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;
  void on_evaluation_start(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_evaluation_batch_end(Trainer& trainer, Module& module, std::string_view stage,
                               const Batch& batch, int64_t batch_index) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_end(Trainer& trainer, Module& module) override { end(); }
  void on_exception(Trainer& trainer, Module& module, const std::exception& error) override {
    end();
  }

 private:
  /// Of a fit: the same callback may be given to an evaluation.
  void end() {
    line_.clear();
    evaluation_.clear();
    started_ = false;
  }

  ProgressLine line_;
  ProgressLine evaluation_;  // while one runs
  bool started_ = false;
};

LEVIN_API std::shared_ptr<ProgressBar> progress_bar(ProgressOptions options = {});

}  // namespace levin
