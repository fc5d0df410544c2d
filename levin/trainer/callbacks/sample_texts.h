#pragma once
// SampleTexts: writes down, while a model trains, what it makes of some prompts.
//
//   options.callbacks = {levin::sample_texts({.prompts = {"class "}, .tokenizer = tokenizer, .every_n_steps = 100})};

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/models/generate/options.h"
#include "levin/module/callback.h"

namespace levin {

struct SampleTextsOptions {
  std::vector<std::string> prompts;
  bool chat = false;  ///< prompts are what a user says, put into the tokenizer's chat template
  std::shared_ptr<const text::Tokenizer> tokenizer;
  int64_t every_n_steps = 0;   ///< optimizer steps; 0: not by steps
  int64_t every_n_epochs = 1;  ///< at an epoch's end; 0: not by epochs
  /// What draws has a seed of its own in each sample, where none is given.
  models::GenerateOptions generate = {.max_new_tokens = 64};
  /// Within the run's folder of logs, to which samples are added; empty: nowhere.
  std::string file = "samples.txt";
  bool print = true;  ///< to the log of the program too
  /// Is told of each, on the main process.
  std::function<void(int64_t step, const std::string& prompt, const std::string& text)> on_sample;
};

/// Of the models::Pretrained in the module. Training does not notice: it has the same weights, bit for
/// bit, with this and without it. Throws Error "trainer.sample_texts" where there is none, no prompt or
/// no tokenizer, where the options never sample, where the file cannot be written, and on XLA devices; and before the
/// first batch what generate() throws for its options.
class LEVIN_API SampleTexts : public Callback {
 public:
  explicit SampleTexts(SampleTextsOptions options);

  std::string state_key() const override { return "sample_texts"; }
  /// How long the file is, so that a run which goes on in its folder drops samples from after the checkpoint.
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  void on_load_checkpoint(Trainer& trainer, Module& module, const State& checkpoint) override;
  void on_fit_start(Trainer& trainer, Module& module) override;
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;

 private:
  void sample(Trainer& trainer, Module& module);
  void tell(const Trainer& trainer, const std::vector<std::string>& texts);
  /// To the file; throws Error "files.replace" and "files.write".
  void append(const Trainer& trainer, const std::string& texts);

  SampleTextsOptions options_;
  int64_t sampled_at_ = -1;  // global step
  std::string path_;         // of the file; empty: none
  int64_t bytes_ = -1;       // of the file at the checkpoint; -1: not known
  bool told_ = false;        // that the file cannot be written
};

LEVIN_API std::shared_ptr<SampleTexts> sample_texts(SampleTextsOptions options);

}  // namespace levin
