#include "levin/module/module.h"

#include <iostream>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/data/module.h"
#include "levin/module/module_context.h"

namespace levin {

OptimizerHandle::~OptimizerHandle() = default;
ModuleContext::~ModuleContext() = default;

void attach_context(Module& module, ModuleContext* context) { module.context_ = context; }

at::Tensor Module::training_step(const Batch& batch, int64_t) {
  takes_batch_index_ = false;
  return training_step(batch);
}

at::Tensor Module::training_step(const Batch&) {
  LEVIN_FAIL("module.training_step", "{} has no training_step; override it to train the module",
             name());
}

void Module::validation_step(const Batch&, int64_t) {}
void Module::test_step(const Batch&, int64_t) {}

at::Tensor Module::predict_step(const Batch&, int64_t) {
  LEVIN_FAIL("module.predict_step", "{} has no predict_step; override it to use trainer.predict",
             name());
}

OptimizerConfig Module::configure_optimizers() {
  LEVIN_CHECK(optimizer_, "module.configure_optimizers",
              "{} has no configure_optimizers; override it to train the module, or choose an "
              "optimizer with --optimizer or use_optimizer()",
              name());
  return *optimizer_;
}

LoggedValues* Module::logged() {
  if (context_ != nullptr) return context_->logged();
  if (!warned_) {
    log::warn("module.log: {} is not run by a Trainer, so its logged values are dropped", name());
    warned_ = true;
  }
  return nullptr;
}

void Module::log(std::string_view name, const at::Tensor& value, const LogOptions& options) {
  if (LoggedValues* values = logged()) values->log(name, value, options);
}

void Module::log(std::string_view name, double value, const LogOptions& options) {
  if (LoggedValues* values = logged()) values->log(name, value, options);
}

void Module::log(std::string_view name, std::shared_ptr<Metric> metric, const LogOptions& options) {
  if (LoggedValues* values = logged()) values->log(name, std::move(metric), options);
}

void Module::log_dict(std::initializer_list<std::pair<std::string_view, at::Tensor>> values,
                      const LogOptions& options) {
  for (const auto& [name, value] : values) log(name, value, options);
}

ModuleContext& Module::context(std::string_view caller) const {
  LEVIN_CHECK(context_ != nullptr, "module.context",
              "{} was called outside of a run; call it while a Trainer runs this module", caller);
  return *context_;
}

OptimizerHandle& Module::optimizer(int64_t index) { return context("optimizer").optimizer(index); }

void Module::manual_backward(const at::Tensor& loss) { context("manual_backward").backward(loss); }

void Module::set_loss_weight(double weight) { context("set_loss_weight").set_loss_weight(weight); }
void Module::set_loss_weight(const at::Tensor& weight) {
  context("set_loss_weight").set_loss_weight(weight);
}

void Module::backward(const at::Tensor& loss) { context("backward").run_backward(loss); }

void Module::optimizer_zero_grad(OptimizerHandle& optimizer) { optimizer.zero_grad(); }

void Module::configure_gradient_clipping(OptimizerHandle& optimizer,
                                         std::optional<double> gradient_clip_val,
                                         std::string_view gradient_clip_algorithm) {
  if (gradient_clip_val.value_or(0.0) == 0.0) return;
  if (gradient_clip_algorithm == "value") return optimizer.clip_grad_value(*gradient_clip_val);
  optimizer.clip_grad_norm(*gradient_clip_val);
}

void Module::optimizer_step(OptimizerHandle& optimizer) { optimizer.step(); }

Batch Module::transfer_batch_to_device(Batch batch) {
  return context("transfer_batch_to_device").to_device(std::move(batch));
}

std::vector<DataLoader> Module::val_dataloaders() { return detail::list_of(val_dataloader()); }
std::vector<DataLoader> Module::test_dataloaders() { return detail::list_of(test_dataloader()); }
std::vector<DataLoader> Module::predict_dataloaders() {
  return detail::list_of(predict_dataloader());
}

int64_t Module::dataloader_index() const { return context("dataloader_index").dataloader_index(); }
int64_t Module::batch_index() const { return context("batch_index").batch_index(); }
int64_t Module::current_epoch() const { return context("current_epoch").current_epoch(); }
int64_t Module::global_step() const { return context("global_step").global_step(); }
at::Device Module::device() const { return context("device").device(); }
at::ScalarType Module::dtype() const {
  for (const at::Tensor& parameter : parameters()) {
    if (parameter.is_floating_point()) return parameter.scalar_type();
  }
  return c10::get_default_dtype_as_scalartype();
}
Trainer& Module::trainer() const { return context("trainer").trainer(); }
bool Module::is_global_zero() const { return context("is_global_zero").is_global_zero(); }
at::Tensor Module::all_gather(const at::Tensor& tensor) const {
  return context("all_gather").all_gather(tensor);
}
void Module::print(std::string_view line) const {
  if (!context("print").is_global_zero()) return;
  std::cout << line << std::endl;
}
comm::ProcessGroup Module::data_group() const { return context("data_group").data_group(); }

}  // namespace levin
