#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <string>
#include <utility>
#include <vector>

#include "levin/accelerator/engine/engine.h"
#include "levin/base/check.h"
#include "levin/graph/compile/host_part.h"
#include "levin/module/parameters.h"
#include "levin/optim/optim.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/callbacks/measures/measures.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

class GradientNormMonitor : public Callback {
 public:
  /// Throws Error "optim.grad_norm" for options out of range.
  explicit GradientNormMonitor(GradientNormMonitorOptions options);

  std::string state_key() const override { return "gradient_norm_monitor"; }
  void on_train_batch_start(Trainer& trainer, Module& module, const Batch& batch,
                            int64_t batch_index) override;
  void on_before_optimizer_step(Trainer& trainer, Module& module) override;

 private:
  std::vector<NamedTensor> next_parameters(Trainer& trainer, Module& module, bool* is_last);
  static void log(Module& module, const std::vector<NamedTensor>& norms);

  GradientNormMonitorOptions options_;
  bool is_due_ = false;
  std::vector<size_t> stepping_;    // places of the optimizers that step in this step
  size_t next_ = 0;                 // of stepping_
  std::vector<at::Tensor> totals_;  // of the optimizers that have stepped in this step
};

GradientNormMonitor::GradientNormMonitor(GradientNormMonitorOptions options)
    : options_(std::move(options)) {
  optim::grad_norm({}, {.norm_type = options_.norm_type, .by = options_.by});
  LEVIN_CHECK(options_.every_n_steps >= 0, "optim.grad_norm",
              "got every_n_steps = {}, wanted 0 or more", options_.every_n_steps);
}

// The step itself must not ask for its number: compile = "replay" would take it for a condition.
void GradientNormMonitor::on_train_batch_start(Trainer& trainer, Module&, const Batch&, int64_t) {
  const int64_t every =
      options_.every_n_steps > 0 ? options_.every_n_steps : trainer.options().log_every_n_steps;
  is_due_ = (trainer.global_step() + 1) % every == 0;
  stepping_.clear();
  for (size_t i = 0; i < trainer.optimizers().size(); ++i) {
    const int64_t frequency = trainer.optimizers()[i].frequency();
    if ((trainer.global_step() + 1) % frequency == 0) stepping_.push_back(i);
  }
  next_ = 0;
  totals_.clear();
}

/// Several optimizers step one after another, and the hook is called before each. Manual
/// optimization has an order of its own: norms are of all gradients then, as in Lightning.
std::vector<NamedTensor> GradientNormMonitor::next_parameters(Trainer& trainer, Module& module,
                                                              bool* is_last) {
  if (!module.automatic_optimization || next_ >= stepping_.size()) {
    totals_.clear();
    return named_parameters(module);
  }
  const size_t place = stepping_[next_++];
  *is_last = next_ == stepping_.size();
  return trainer.optimizers()[place].optimizer().parameters();
}

void GradientNormMonitor::on_before_optimizer_step(Trainer& trainer, Module& module) {
  Engine& engine = engine_of(trainer.accelerator());
  graph::HostPart* recording = engine.stepping().recording();
  // A recorded step is replayed in steps that are logged too.
  if (!is_due_ && recording == nullptr) return;
  engine.strategy().wait_gradients();
  bool is_last = true;
  std::vector<NamedTensor> norms =
      optim::grad_norm(next_parameters(trainer, module, &is_last),
                       {.norm_type = options_.norm_type, .by = options_.by});
  if (norms.empty()) return;
  totals_.push_back(norms.back().tensor);
  if (!is_last) {
    norms.pop_back();
  } else if (totals_.size() > 1) {
    const at::NoGradGuard no_grad;
    norms.back().tensor = at::linalg_vector_norm(at::stack(totals_), options_.norm_type);
  }
  // A recorded step must keep no tensor of its own.
  if (is_last) totals_.clear();
  if (norms.empty()) return;
  if (recording == nullptr) return log(module, norms);
  std::vector<std::string> names;
  std::vector<at::Tensor> values;
  for (NamedTensor& norm : norms) {
    names.push_back(std::move(norm.name));
    values.push_back(std::move(norm.tensor));
  }
  recording->with(
      at::stack(values),
      [this, &module, names = std::move(names)](const at::Tensor& now) {
        if (!is_due_) return;
        std::vector<NamedTensor> logged;
        for (size_t i = 0; i < names.size(); ++i) {
          logged.push_back({names[i], now[static_cast<int64_t>(i)]});
        }
        log(module, logged);
      },
      "log gradient norms");
}

void GradientNormMonitor::log(Module& module, const std::vector<NamedTensor>& norms) {
  for (const NamedTensor& norm : norms) {
    module.log(norm.name, norm.tensor, {.on_step = true, .on_epoch = false});
  }
}

}  // namespace

std::shared_ptr<Callback> gradient_norm_monitor(GradientNormMonitorOptions options) {
  return std::make_shared<GradientNormMonitor>(std::move(options));
}

}  // namespace levin
