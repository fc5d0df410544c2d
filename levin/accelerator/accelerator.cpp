#include "levin/accelerator/accelerator.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_set>

#include "levin/accelerator/device.h"
#include "levin/accelerator/host_memory.h"
#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/optim/clip.h"

namespace levin {

void AcceleratorOptions::fields(FieldVisitor& field) {
  field("mixed_precision", mixed_precision, "no or bf16");
  field("cpu", cpu, "use the CPU even where there is a GPU");
  field("accelerator", accelerator, "auto, cpu or gpu");
  field("strategy", strategy, "how parameters are kept over processes: auto or single");
}

Accelerator::Accelerator(AcceleratorOptions options)
    : rank_(rank_from_environment()),
      device_(select_device(options.cpu ? "cpu" : options.accelerator, rank_)),
      precision_(parse_precision(options.mixed_precision)),
      strategy_(make_strategy(options.strategy, rank_)) {
  if (device_.is_cpu()) detail::keep_freed_memory();
}

Accelerator::~Accelerator() = default;

void Accelerator::prepare_module(const std::shared_ptr<torch::nn::Module>& module) {
  LEVIN_CHECK(module != nullptr, "accelerator.module",
              "got an empty module pointer, wanted a module");
  strategy_->setup(*module, device_);
  const bool known = std::find(modules_.begin(), modules_.end(), module) != modules_.end();
  if (!known) modules_.push_back(module);
  parameters_ = name_parameters();
}

std::vector<NamedTensor> Accelerator::name_parameters() const {
  std::vector<NamedTensor> all;
  std::unordered_set<const c10::TensorImpl*> seen;  // two modules may share one
  for (size_t i = 0; i < modules_.size(); ++i) {
    for (NamedTensor& parameter : named_parameters(*modules_[i])) {
      if (!seen.insert(parameter.tensor.unsafeGetTensorImpl()).second) continue;
      if (modules_.size() > 1) parameter.name = std::to_string(i) + "." + parameter.name;
      all.push_back(std::move(parameter));
    }
  }
  return all;
}

std::vector<NamedTensor> Accelerator::parameters_for(const OptimizerConfig& config) const {
  if (config.module() == nullptr) {
    LEVIN_CHECK(modules_.size() == 1 || config.pattern() != "*", "accelerator.optimizer",
                "{} is bound to no module and {} are prepared; bind it: optim::{}(...).of(module)",
                config.name(), modules_.size(), config.name());
    return parameters_;
  }
  std::unordered_set<const c10::TensorImpl*> wanted;
  for (const at::Tensor& parameter : config.module()->parameters()) {
    wanted.insert(parameter.unsafeGetTensorImpl());
  }
  const auto bound = [&](std::vector<NamedTensor> parameters) {
    std::erase_if(parameters, [&](const NamedTensor& parameter) {
      return !wanted.contains(parameter.tensor.unsafeGetTensorImpl());
    });
    return parameters;
  };
  const std::vector<NamedTensor> parameters = bound(parameters_);
  for (const auto& module : modules_) {  // all of one module's: under the names it gives them
    std::vector<NamedTensor> own = bound(named_parameters(*module));
    if (own.size() == parameters.size() && !own.empty()) return own;
  }
  LEVIN_CHECK(!parameters.empty(), "accelerator.optimizer",
              "{} is bound to a module that was not prepared; give that module to prepare too",
              config.name());
  return parameters;
}

std::vector<PreparedOptimizer> Accelerator::prepare_optimizers(
    const std::vector<OptimizerConfig>& configs, int64_t total_steps) {
  std::vector<PreparedOptimizer> prepared;
  for (const OptimizerConfig& config : configs) {
    prepared.emplace_back(strategy_->build_optimizer(config, parameters_for(config)),
                          config.schedule(), config.frequency(), total_steps, strategy_.get());
  }
  optimizers_.insert(optimizers_.end(), prepared.begin(), prepared.end());
  for (PreparedOptimizer& optimizer : optimizers_) optimizer.set_rivals(optimizers_);
  return prepared;
}

PreparedOptimizer Accelerator::prepare_optimizer(const OptimizerConfig& config) {
  const std::vector<OptimizerConfig> configs = config.list();
  LEVIN_CHECK(
      configs.size() == 1, "accelerator.optimizer",
      "got {} optimizers in one OptimizerConfig, wanted one; give prepare its list(), which "
      "comes back as a vector",
      configs.size());
  return prepare_optimizers(configs).front();
}

DataLoader Accelerator::prepare_loader(DataLoader loader, LoaderRole role) {
  loader.set_slice(strategy_->slice(), /*even=*/role == LoaderRole::kTraining);
  if (device_.is_cuda() && !loader.options().pin_memory.has_value()) loader.set_pin_memory(true);
  if (role == LoaderRole::kTraining) loaders_.push_back(loader);
  return loader;
}

void Accelerator::free_memory() {
  modules_.clear();
  parameters_.clear();
  optimizers_.clear();
  loaders_.clear();
}

void Accelerator::backward(const at::Tensor& loss, bool synchronize) {
  LEVIN_CHECK(loss.numel() == 1, "accelerator.loss",
              "got a loss of shape {}, wanted a scalar; take its mean or sum",
              c10::str(loss.sizes()));
  LEVIN_CHECK(loss.requires_grad(), "accelerator.loss",
              "this loss depends on no parameter; was it detached, or computed without gradients?");
  strategy_->backward(loss, synchronize);
}

at::Tensor Accelerator::clip_grad_norm(double max_norm, double norm_type) {
  return strategy_->clip_grad_norm(parameters_, max_norm, norm_type);
}

void Accelerator::clip_grad_value(double clip_value) {
  optim::clip_grad_value(parameters_, clip_value);
}

bool Accelerator::any(bool flag) {
  if (rank_.world_size == 1) return flag;
  return strategy_->all_reduce(at::scalar_tensor(flag ? 1 : 0), ReduceOp::kMax).item<double>() > 0;
}

namespace {

std::string weights_name(size_t index) {
  return index == 0 ? "model" : "model_" + std::to_string(index);
}

template <class Items>
State numbered(const Items& items) {
  State state;
  for (size_t i = 0; i < items.size(); ++i) state.set(std::to_string(i), items[i].state_dict());
  return state;
}

void check_count(std::string_view what, size_t saved, size_t here) {
  LEVIN_CHECK(saved == here, "accelerator.state",
              "the checkpoint holds {} {} and {} are prepared; prepare the same before load_state",
              saved, what, here);
}

template <class Items>
void load_numbered(std::string_view what, Items& items, const State& state) {
  check_count(what, state.values().size(), items.size());
  for (size_t i = 0; i < items.size(); ++i)
    items[i].load_state_dict(state.child(std::to_string(i)));
}

}  // namespace

Checkpoint Accelerator::state_dict() const {
  Checkpoint checkpoint;
  for (size_t i = 0; i < modules_.size(); ++i) {
    checkpoint.weights[weights_name(i)] = module_state(*modules_[i]);
  }
  State registered;
  for (size_t i = 0; i < registered_.size(); ++i) {
    registered.set(std::to_string(i), registered_[i].save());
  }
  checkpoint.training.set("optimizers", numbered(optimizers_))
      .set("loaders", numbered(loaders_))
      .set("random", random_state())
      .set("registered", std::move(registered));
  return checkpoint;
}

void Accelerator::load_state_dict(const Checkpoint& checkpoint) {
  check_count("modules", checkpoint.weights.size(), modules_.size());
  const State& training = checkpoint.training;
  check_count("registered objects", training.child("registered").values().size(),
              registered_.size());
  for (size_t i = 0; i < modules_.size(); ++i) {
    LEVIN_CHECK(checkpoint.weights.contains(weights_name(i)), "accelerator.state",
                "the checkpoint holds no weights named '{}'; load one that save_state wrote",
                weights_name(i));
  }
  for (size_t i = 0; i < modules_.size(); ++i) {
    load_module_state(*modules_[i], checkpoint.weights.at(weights_name(i)));
  }
  load_numbered("optimizers", optimizers_, training.child("optimizers"));
  load_numbered("loaders", loaders_, training.child("loaders"));
  for (size_t i = 0; i < registered_.size(); ++i) {
    registered_[i].load(training.child("registered").child(std::to_string(i)));
  }
  load_random_state(training.child("random"));
}

void Accelerator::save_state(const std::filesystem::path& folder) {
  if (is_main_process()) save_checkpoint(folder, state_dict());
}

void Accelerator::load_state(const std::filesystem::path& folder) {
  load_state_dict(load_checkpoint(folder));
}

}  // namespace levin
