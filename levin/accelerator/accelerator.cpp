#include "levin/accelerator/accelerator.h"

#include <utility>

#include "levin/accelerator/engine/engine.h"
#include "levin/accelerator/prepared/make_prepared_optimizer.h"
#include "levin/base/check.h"
#include "levin/optim/torch_adapter.h"

namespace levin {

Accelerator::Accelerator(AcceleratorOptions options)
    : Accelerator(std::make_unique<Engine>(options)) {}

Accelerator::Accelerator(std::unique_ptr<Engine> engine)
    : Processes(*engine), engine_(std::move(engine)) {}

Accelerator::~Accelerator() = default;

Engine& engine_of(Accelerator& accelerator) { return *accelerator.engine_; }

const AcceleratorOptions& Accelerator::options() const { return engine_->options_; }
at::Device Accelerator::device() const { return engine_->device_; }
const std::shared_ptr<xla::Runtime>& Accelerator::xla() const { return engine_->xla_; }
Stepping& Accelerator::stepping() { return *engine_->stepping_; }
bool Accelerator::compiles() const { return engine_->compiles(); }

void Accelerator::prepare_module(const std::shared_ptr<torch::nn::Module>& module) {
  engine_->prepare_module(module);
}

ForwardConditions Accelerator::place_for_evaluation(
    const std::shared_ptr<torch::nn::Module>& module) {
  return engine_->place_for_evaluation(module);
}

void Accelerator::choose_strategy(const std::vector<OptimizerConfig>& configs) {
  engine_->choose_strategy(configs, options().accumulation_steps());
}

ForwardConditions Accelerator::forward_conditions() const { return engine_->forward_conditions(); }

PreparedOptimizer Accelerator::prepare_optimizer(const OptimizerConfig& config) {
  const std::vector<OptimizerConfig> configs = config.list();
  LEVIN_CHECK(configs.size() == 1, "accelerator.optimizer",
              "got {} optimizers in one OptimizerConfig, wanted one; give prepare the "
              "OptimizerConfig's list(), and it returns a vector",
              configs.size());
  return prepare_own_optimizers(configs).front();
}

std::vector<PreparedOptimizer> Accelerator::prepare_own_optimizers(
    const std::vector<OptimizerConfig>& configs) {
  for (const OptimizerConfig& config : configs) {
    LEVIN_CHECK(config.frequency() == 1, "accelerator.optimizer",
                "{} has frequency({}), but only the Trainer applies a frequency; leave it out and "
                "call step() when it is due",
                config.name(), config.frequency());
  }
  return engine_->prepare_optimizers(configs);
}

PreparedOptimizer Accelerator::prepare_torch_optimizer(
    std::shared_ptr<torch::optim::Optimizer> optimizer) {
  LEVIN_CHECK(!engine_->options_.engine.master_weights, "accelerator.optimizer",
              "got master_weights with an optimizer of torch::optim, but only optimizers of "
              "levin::optim keep master weights; give prepare levin::optim::sgd, adam or adamw, or "
              "leave master_weights out");
  LEVIN_CHECK(
      engine_->options_.engine.offload.state == "no", "accelerator.offload",
      "got --offload optimizer with an optimizer of torch::optim, which keeps its state itself; "
      "give prepare levin::optim::adamw or another one of levin::optim, or leave --offload out");
  auto adapted = optim::adapt_torch_optimizer(std::move(optimizer), engine_->parameters_);
  engine_->optimizers_.push_back(make_prepared_optimizer(std::move(adapted), std::nullopt,
                                                         /*frequency=*/1, /*total_steps=*/-1,
                                                         engine_->stepping_));
  engine_->optimizers_changed();
  return engine_->optimizers_.back();
}

DataLoader Accelerator::prepare_loader(DataLoader loader, LoaderRole role) {
  return engine_->prepare_loader(std::move(loader), role);
}

PreparedLoader Accelerator::prepared_loader(const DataLoader& loader) {
  return engine_->prepared_loader(loader);
}

detail::TorchLoaderHooks Accelerator::prepare_torch_loader() {
  engine_->check_torch_loader();
  Engine* const engine = engine_.get();  // outlives what is prepared
  return {.rank = process_index(),
          .size = num_processes(),
          .parts = engine->placement_.parts(),
          .to_device = [engine](const at::Tensor& rows) { return engine->to_device(rows); },
          .end_batch = [engine] { engine->placement_.end_batch(); },
          .in_use = engine->in_use_,
          .in_step = [engine](const auto& draws) { engine->in_step(draws); }};
}

void Accelerator::free_memory() { engine_->free_memory(); }

void Accelerator::init_trackers(
    const std::string& project_name, const std::map<std::string, std::string>& config,
    const std::map<std::string, std::map<std::string, std::string>>& init_kwargs) {
  engine_->trackers_.init(project_name, config, init_kwargs);
}

int64_t Accelerator::save_iteration() const { return engine_->project_.next_number(); }

void Accelerator::add_tracker(std::string name, std::shared_ptr<Logger> logger) {
  engine_->trackers_.add(std::move(name), std::move(logger));
}

std::shared_ptr<Logger> Accelerator::get_tracker(const std::string& name) const {
  return engine_->trackers_.get(name);
}

void Accelerator::log(const Scalars& values, int64_t step) { engine_->trackers_.log(values, step); }

void Accelerator::end_training() {
  finish_saves();
  engine_->trackers_.end();
}

}  // namespace levin
