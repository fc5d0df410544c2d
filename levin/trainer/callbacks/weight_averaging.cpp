#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/module/parameters.h"
#include "levin/shard/sharded_tensor.h"
#include "levin/trainer/callbacks/callbacks.h"
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
  /// Takes the module's tensors, and begins with averages that equal them.
  void begin(const Module& module);
  std::vector<at::Tensor> current() const;
  void note_written() const;
  void update();
  /// Exchanges the values of the module and the averages.
  void swap();

  WeightAveragingOptions options_;
  std::vector<NamedTensor> tensors_;  ///< the module's parameters and buffers that are averaged
  std::vector<at::Tensor> averages_;  ///< of this rank's values, by tensor
  int64_t num_updates_ = 0;
  int64_t updated_at_ = 0;   ///< global step of the last update
  bool is_swapped_ = false;  ///< the module holds the averages
  State loaded_;             ///< the state of a checkpoint, until the module is there
};

WeightAveraging::WeightAveraging(WeightAveragingOptions options) : options_(options) {
  const double decay = options_.decay.value_or(0.0);
  LEVIN_CHECK(decay >= 0.0 && decay < 1.0, "trainer.weight_averaging",
              "got decay = {}, wanted at least 0 and below 1", decay);
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

void WeightAveraging::begin(const Module& module) {
  const at::NoGradGuard no_grad;
  tensors_.clear();
  for (const NamedTensor& parameter : named_parameters(module)) {
    if (parameter.tensor.requires_grad()) tensors_.push_back(parameter);
  }
  for (const auto& buffer : module.named_buffers()) {
    if (options_.use_buffers && buffer.value().is_floating_point()) {
      tensors_.push_back({buffer.key(), buffer.value()});
    }
  }
  averages_.clear();
  for (const at::Tensor& own : current()) averages_.push_back(own.detach().clone());
  num_updates_ = updated_at_ = 0;
  is_swapped_ = false;
}

std::vector<at::Tensor> WeightAveraging::current() const {
  std::vector<at::Tensor> own;
  for (const NamedTensor& tensor : tensors_) {
    own.push_back(shard::own_values(tensor.tensor).detach());
  }
  return own;
}

void WeightAveraging::note_written() const {
  for (const NamedTensor& tensor : tensors_) shard::note_written(tensor.tensor);
}

void WeightAveraging::update() {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> now = current();
  if (num_updates_ == 0) {
    at::_foreach_copy_(averages_, now);
  } else {
    const double weight =
        options_.decay ? 1.0 - *options_.decay : 1.0 / static_cast<double>(num_updates_ + 1);
    at::_foreach_lerp_(averages_, now, weight);
  }
  ++num_updates_;
}

void WeightAveraging::swap() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> now = current();
  for (size_t i = 0; i < now.size(); ++i) {
    at::Tensor before = now[i].clone();
    now[i].copy_(averages_[i]);
    averages_[i] = std::move(before);
  }
  note_written();
  is_swapped_ = !is_swapped_;
}

void WeightAveraging::on_fit_start(Trainer& trainer, Module& module) {
  if (averages_.empty() || loaded_.empty()) begin(module);
  loaded_ = State();
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
  if (!averages_.empty() && !is_swapped_) swap();
}

void WeightAveraging::on_evaluation_end(Trainer&, Module&, std::string_view) {
  if (is_swapped_) swap();
}

void WeightAveraging::on_exception(Trainer&, Module&, const std::exception&) {
  if (is_swapped_) swap();
}

void WeightAveraging::on_train_end(Trainer&, Module&) {
  swap();
  // A later evaluation of this Trainer sees the module as it is.
  averages_.clear();
  tensors_.clear();
  is_swapped_ = false;
}

State WeightAveraging::state_dict() const {
  State state;
  state.set("num_updates", num_updates_).set("updated_at", updated_at_);
  State current_values;
  for (const NamedTensor& tensor : tensors_) {
    current_values.set(
        tensor.name, shard::state_value(tensor.tensor, shard::own_values(tensor.tensor).detach()));
  }
  return std::move(state.set(kCurrent, std::move(current_values)));
}

void WeightAveraging::on_save_weights(Trainer&, Module&, State& weights) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::string& name = tensors_[i].name;
    if (!weights.contains(name)) continue;
    weights.set(name, shard::state_value(tensors_[i].tensor, averages_[i]));
  }
}

// The weights of the checkpoint, which the module has now, are the averages.
void WeightAveraging::on_load_checkpoint(Trainer&, Module& module, const State&) {
  begin(module);
  if (loaded_.empty()) return;
  num_updates_ = loaded_.integer("num_updates");
  updated_at_ = loaded_.integer("updated_at");
  const at::NoGradGuard no_grad;
  const State& values = loaded_.child(kCurrent);
  const std::vector<at::Tensor> own = current();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::string& name = tensors_[i].name;
    LEVIN_CHECK(
        values.contains(name), "trainer.weight_averaging",
        "the checkpoint has no trained values of {}; resume with the module and the options "
        "of weight_averaging that wrote it",
        name);
    const State::Value& saved = values.tensor_or_slice(name);
    const std::string other = shard::difference(tensors_[i].tensor, saved);
    LEVIN_CHECK(other.empty(), "trainer.weight_averaging",
                "the checkpoint's trained values of {} have a wrong shape: {}", name, other);
    own[i].copy_(shard::own_part(tensors_[i].tensor, saved));
  }
  note_written();
}

}  // namespace

std::shared_ptr<Callback> weight_averaging(WeightAveragingOptions options) {
  return std::make_shared<WeightAveraging>(options);
}

}  // namespace levin
