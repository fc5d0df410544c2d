#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/trainer/callbacks/averaged_tensors.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

constexpr const char* kCurrent = "current";

class WeightAveraging final : public Callback {
 public:
  explicit WeightAveraging(WeightAveragingOptions options);

  std::string state_key() const override { return "weight_averaging"; }
  State state_dict() const override;
  void load_state_dict(const State& state) override { loaded_ = state; }

  void on_fit_start(Trainer& trainer, Module& module) override;
  void on_train_batch_start(Trainer& trainer, Module& module, const Batch& batch,
                            int64_t batch_index) override;
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;
  void on_evaluation_start(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_end(Trainer& trainer, Module& module) override;
  void on_exception(Trainer& trainer, Module& module, const std::exception& error) override;
  void on_save_weights(Trainer& trainer, Module& module, State& weights) override;
  void on_load_checkpoint(Trainer& trainer, Module& module, const State& checkpoint) override;

 private:
  /// Begins with averages that equal the module's tensors.
  void begin(const Module& module);
  std::vector<NamedTensor> averaged_of(const Module& module) const;
  void update() { tensors_.update(options_.decay, options_.avg_fn); }

  WeightAveragingOptions options_;
  detail::AveragedTensors tensors_;
  int64_t updated_at_ = 0;  ///< global step of the last update
  State loaded_;            ///< the state of a checkpoint, until the module is there
};

WeightAveraging::WeightAveraging(WeightAveragingOptions options) : options_(std::move(options)) {
  const double decay = options_.decay.value_or(0.0);
  LEVIN_CHECK(decay >= 0.0 && decay < 1.0, "trainer.weight_averaging",
              "got decay = {}, wanted at least 0 and below 1", decay);
  LEVIN_CHECK(!options_.avg_fn || !options_.decay, "trainer.weight_averaging",
              "got decay = {} and an avg_fn; set decay = std::nullopt to use the function", decay);
  LEVIN_CHECK(options_.update_every_n_steps >= 0 && options_.update_starting_at_step >= 0 &&
                  options_.update_starting_at_epoch.value_or(0) >= 0,
              "trainer.weight_averaging",
              "got update_every_n_steps = {}, update_starting_at_step = {} and "
              "update_starting_at_epoch = {}, wanted at least 0",
              options_.update_every_n_steps, options_.update_starting_at_step,
              options_.update_starting_at_epoch.value_or(0));
  LEVIN_CHECK(options_.update_every_n_steps > 0 || options_.update_starting_at_epoch,
              "trainer.weight_averaging",
              "got update_every_n_steps = 0 and no update_starting_at_epoch, so the average is "
              "never updated; set one of them");
}

// A parameter that was trained before the checkpoint may not be unfrozen yet, when another callback
// (finetuning) does that later.
std::vector<NamedTensor> WeightAveraging::averaged_of(const Module& module) const {
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& parameter : named_parameters(module)) {
    const bool was_trained = !loaded_.empty() && loaded_.child(kCurrent).contains(parameter.name);
    if (parameter.tensor.requires_grad() || was_trained) tensors.push_back(parameter);
  }
  for (const auto& buffer : module.named_buffers()) {
    if (options_.use_buffers && buffer.value().is_floating_point()) {
      tensors.push_back({buffer.key(), buffer.value()});
    }
  }
  return tensors;
}

void WeightAveraging::begin(const Module& module) {
  tensors_.begin(averaged_of(module));
  updated_at_ = 0;
}

void WeightAveraging::on_fit_start(Trainer&, Module& module) {
  if (tensors_.empty() || loaded_.empty()) begin(module);
  loaded_ = State();
}

// Parameters may have been unfrozen.
void WeightAveraging::on_train_batch_start(Trainer&, Module& module, const Batch&,
                                           int64_t batch_index) {
  if (batch_index == 0) tensors_.add(averaged_of(module));
}

void WeightAveraging::on_train_batch_end(Trainer& trainer, Module&, const at::Tensor&, const Batch&,
                                         int64_t) {
  const int64_t step = trainer.global_step();
  if (step <= updated_at_ || options_.update_every_n_steps == 0) return;
  if (step - 1 < options_.update_starting_at_step) return;
  if ((step - 1) % options_.update_every_n_steps != 0) return;
  update();
  updated_at_ = step;
}

void WeightAveraging::on_train_epoch_end(Trainer& trainer, Module&) {
  const std::optional<int64_t> from = options_.update_starting_at_epoch;
  if (from && trainer.current_epoch() >= *from) update();
}

void WeightAveraging::on_evaluation_start(Trainer&, Module&, std::string_view) {
  if (!tensors_.empty() && !tensors_.is_swapped()) tensors_.swap();
}

void WeightAveraging::on_evaluation_end(Trainer&, Module&, std::string_view) {
  if (tensors_.is_swapped()) tensors_.swap();
}

void WeightAveraging::on_exception(Trainer&, Module&, const std::exception&) {
  if (tensors_.is_swapped()) tensors_.swap();
}

void WeightAveraging::on_train_end(Trainer&, Module&) {
  tensors_.swap();
  tensors_.clear();  // a later evaluation of this Trainer sees the module as it is
}

State WeightAveraging::state_dict() const {
  State state;
  state.set("num_updates", tensors_.num_updates()).set("updated_at", updated_at_);
  return std::move(state.set(kCurrent, tensors_.values()));
}

void WeightAveraging::on_save_weights(Trainer&, Module&, State& weights) {
  tensors_.give_averages(weights);
}

// The weights of the checkpoint, which the module has now, are the averages.
void WeightAveraging::on_load_checkpoint(Trainer&, Module& module, const State&) {
  begin(module);
  if (loaded_.empty()) return;
  tensors_.set_num_updates(loaded_.integer("num_updates"));
  updated_at_ = loaded_.integer("updated_at");
  tensors_.load_values(loaded_.child(kCurrent));
}

}  // namespace

std::shared_ptr<Callback> weight_averaging(WeightAveragingOptions options) {
  return std::make_shared<WeightAveraging>(std::move(options));
}

}  // namespace levin
