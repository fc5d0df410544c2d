#include "levin/accelerator/engine/engine.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <unordered_set>

#include "levin/accelerator/compiled/compiled_step.h"
#include "levin/accelerator/compiled/graph_file.h"
#include "levin/accelerator/engine/automatic_strategy.h"
#include "levin/accelerator/engine/device.h"
#include "levin/accelerator/engine/host_memory.h"
#include "levin/accelerator/engine/offload.h"
#include "levin/accelerator/engine/parallelism.h"
#include "levin/accelerator/engine/process_settings.h"
#include "levin/accelerator/engine/same_options.h"
#include "levin/accelerator/prepared/make_prepared_optimizer.h"
#include "levin/accelerator/stepping/forward_guards.h"
#include "levin/accelerator/stepping/half_on_cpu.h"
#include "levin/accelerator/stepping/out_of_memory.h"
#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/random.h"
#include "levin/xla/device/runtime.h"

namespace levin {
namespace {

constexpr uint64_t kRankStream = 0x72616e6b;  // "rank"

WorldOptions world_options(const AcceleratorOptions& options, bool on_gpu = false) {
  LEVIN_CHECK(options.devices >= -1, "accelerator.devices",
              "got --devices {}, wanted a number of devices, 0 (as many as were started) or -1 "
              "(one for each GPU)",
              options.devices);
  const bool one_a_gpu = options.devices < 0 && !is_xla(options);
  const std::string_view kind = options.cpu ? "cpu" : std::string_view(options.accelerator);
  return {.devices = is_xla(options) ? 0 : std::max<int64_t>(options.devices, 0),
          .devices_alone = one_a_gpu ? processes_for(kind, num_gpus()) : 1,
          .num_nodes = options.num_nodes,
          .on_gpu = on_gpu,
          .comm = options.engine.comm};
}

/// Sets one process if `levin plan` or `levin graph` wants the graph of the step: one is enough.
AcceleratorOptions for_graph(AcceleratorOptions options) {
  if (detail::graph_file().empty()) return options;
  const bool computes = !detail::is_graph_without_memory();
  options.engine.compile = computes ? "replay" : "no";
  if (!computes) {  // the strategy's part is reckoned: see strategy/forecast
    options.strategy = "auto";
    options.accelerator = "cpu";  // devices that are not there either
    options.engine.ddp = {};
    options.engine.fsdp = {};
    options.engine.activation_memory_budget = 1.0;
  }
  options.engine.max_memory_gb = 0.0;
  options.engine.fsdp.mesh.clear();
  if (!detail::graph_precision().empty()) options.mixed_precision = detail::graph_precision();
  options.engine.parallelism_config = {};
  options.engine.train_batch_size = 0;
  options.engine.offload = {};
  options.devices = 1;
  options.num_nodes = 1;
  return options;
}

/// Checks the options before they make a strategy, which talks to the other ranks.
AcceleratorOptions agreed(AcceleratorOptions options, comm::ProcessGroup& world) {
  detail::check_same_options(
      world, options_as_text(options),
      {"comm*", "rng_types", "log_with", "project_dir", "automatic_checkpoint_naming",
       "total_limit", "save_on_each_node", "cpu", "accelerator", "devices", "num_nodes",
       "pjrt_plugin", "offload_folder", "max_memory_gb"});
  LEVIN_CHECK(options.engine.train_batch_size >= 0, "accelerator.train_batch_size",
              "got train_batch_size = {}, wanted a number of samples, or 0 for none",
              options.engine.train_batch_size);
  options.strategy = detail::strategy_of(options, world.size());
  options.engine.fsdp.mesh = detail::mesh_of(options);
  const double memory = options.engine.max_memory_gb;
  LEVIN_CHECK(memory >= 0.0, "accelerator.max_memory",
              "got --max-memory-gb {}, wanted gigabytes of a rank, or 0 for what is free", memory);
  LEVIN_CHECK(memory == 0.0 || (options.strategy == "auto" && !is_xla(options)),
              "accelerator.max_memory",
              "got --max-memory-gb {} with strategy '{}', but only strategy auto of CPUs and GPUs "
              "chooses by the memory; leave it out, or set --strategy auto",
              memory, is_xla(options) ? "xla" : options.strategy);
  return options;
}

}  // namespace

Engine::Engine(const AcceleratorOptions& options)
    : Engine(for_graph(options), join_launch(world_options(for_graph(options)))) {
  planned_ddp_ = options.engine.ddp;
  planned_fsdp_ = options.engine.fsdp;
}

Engine::Engine(const AcceleratorOptions& options, const comm::Environment& environment)
    : Engine(options, environment, device_of(options, environment.rank)) {}

Engine::Engine(const AcceleratorOptions& options, const comm::Environment& environment,
               at::Device device)
    : Processes(environment.rank,
                connect_world(environment, world_options(options, device.is_cuda())),
                options.engine.comm.prepare_timeout_s),
      settings_(std::make_unique<detail::ProcessSettings>()),
      options_(agreed(options, world())),
      device_(device),
      xla_(open_xla(options_, world())),
      placement_(device, xla_),
      precision_(parse_precision(options_.mixed_precision)),
      automatic_(
          options_.strategy == "auto" && num_processes() > 1 && xla_ == nullptr
              ? std::make_unique<detail::AutomaticStrategy>(options_, *this, device_, precision_)
              : nullptr),
      strategy_(new_strategy()),
      loop_recording_(
          [this] {
            return detail::LoopRecording::Tensors{.state = named_state(),
                                                  .parameters = named_parameters()};
          },
          [this] { describe(); }),
      project_(options_.project_dir, options_.project_config),
      trackers_(options_.log_with, options_.project_dir, is_main_process()),
      saves_(world()) {
  for (const std::string& type : options_.rng_types) {
    LEVIN_CHECK(type == "generator" || type == "torch" || type == "cuda", "accelerator.rng_types",
                "got '{}' in rng_types, wanted generator, torch or cuda", type);
  }
  check_precision(precision_, device_, compute_capability(device_));
  if (device_.is_cpu()) warn_of_slow_half(precision_);
  LEVIN_CHECK(!options_.engine.master_weights || precision_.has_half_parameters(),
              "accelerator.precision",
              "master_weights are for parameters in bfloat16 or float16, but {} has none; set "
              "--precision bf16-true, or leave out --master-weights",
              precision_.name);
  LEVIN_CHECK(!options_.engine.ddp.overlap_update || !precision_.scales_loss,
              "strategy.ddp.options",
              "--ddp-overlap-update updates parameters before all gradients are there, but {} must "
              "check all gradients first; leave it out, or set --precision bf16-mixed",
              precision_.name);
  check_compile();
  if (detail::is_graph_without_memory()) fake_.emplace();
  static_cast<void>(optim::GradScaler(options_.engine.scaler));  // looked at in 16-mixed alone
  // oneDNN's LSTM has a work space of a size that only oneDNN knows.
  if (detail::is_graph_for_xla() || fake_) settings_->use_no_onednn();
  stepping_ = std::make_shared<Stepping>(
      *strategy_, world(),
      SteppingOptions{
          .gradient_accumulation_steps = options_.accumulation_steps(),
          .sync_each_batch = syncs_each_batch(),
          .step_scheduler_with_optimizer = options_.step_scheduler_with_optimizer,
          .scales_loss = precision_.scales_loss,
          .scaler = options_.engine.scaler,
          .loss_guard = options_.engine.loss_guard,
          .device = device_,
          .records = compiles(),
          .after_step = [this](const optim::Optimizer& optimizer) { after_step(optimizer); }});
  if (device_.is_cpu()) {
    // A replayed step has memory of its own, so the memory of earlier steps must not be kept beside
    // it.
    compiles() ? detail::keep_no_freed_memory() : detail::keep_freed_memory();
  } else if (xla_ != nullptr && xla_->platform() == "cpu") {
    detail::keep_freed_memory();  // a program's results lie in memory of each step, replayed or not
  }
  if (options_.engine.sync_batchnorm && num_processes() > 1) {
    synced_ = std::make_shared<comm::ProcessGroup>(world());
  }
}

std::string Engine::memory_hint(const std::exception& error) {
  const bool is_sharded = options_.strategy == "fsdp" || options_.strategy == "zero";
  std::string hint = levin::memory_hint(
      error, {.device = device_,
              .batch_size = batch_size_,
              .accumulated = stepping_->accumulation_steps(),
              .is_half = precision_.autocast.has_value() || precision_.has_half_parameters(),
              .divides_parameters = is_sharded});
  if (!hint.empty()) explained_ = std::current_exception();
  return hint;
}

std::string Engine::explanation() {
  const auto thrown = std::current_exception();
  if (thrown == nullptr || thrown == explained_) return "";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return memory_hint(error);
  } catch (...) {
    return "";
  }
}

// A process that ends by an exception leaves the others, who would wait for it in vain.
Engine::~Engine() {
  if (!saves_.is_under_way() || std::uncaught_exceptions() > 0) return;
  try {
    finish_saves();
  } catch (const std::exception& error) {
    log::error("accelerator: the last checkpoint could not be saved: {}", error.what());
  }
}

// Reasons that are known beforehand; others are found when a step is recorded.
void Engine::check_compile() const {
  check_compile_check(options_);
  const EngineOptions& engine = options_.engine;
  LEVIN_CHECK(engine.compile == "no" || engine.compile == "replay", "accelerator.compile",
              "got '{}', wanted no or replay; set --compile", engine.compile);
  LEVIN_CHECK(engine.activation_memory_budget > 0.0 && engine.activation_memory_budget <= 1.0,
              "accelerator.compile", "got activation_memory_budget = {}, wanted above 0, at most 1",
              engine.activation_memory_budget);
  LEVIN_CHECK(
      (compiles() && xla_ == nullptr) || engine.activation_memory_budget == 1.0,
      "accelerator.compile",
      "got activation_memory_budget = {}, which works only with --compile replay; {}",
      engine.activation_memory_budget,
      xla_ == nullptr ? "set --compile replay" : "on XLA use levin::activation_checkpoint instead");
  const bool sums_again = engine.ddp.gradient_reduction == "sum" && compiles() &&
                          options_.gradient_accumulation_plugin.sync_each_batch;
  LEVIN_CHECK(!sums_again, "strategy.ddp.options",
              "with recorded steps, --ddp-gradient-reduction sum and sync_each_batch would add the "
              "earlier batches of an accumulation window several times; leave one of them out, or "
              "set --compile no");
  if (!compiles() || !detail::graph_file().empty()) return;
  LEVIN_CHECK(!precision_.scales_loss, "accelerator.compile",
              "{} checks in each step whether gradients are finite, but a recorded step cannot; "
              "set --precision bf16-mixed, or --compile no",
              precision_.name);
  LEVIN_CHECK(!LossGuard(engine.loss_guard).is_on(), "accelerator.compile",
              "--nan-policy and --spike-policy check each loss, but a recorded step cannot; set "
              "them to off, or set --compile no");
}

void Engine::prepare_module(const std::shared_ptr<torch::nn::Module>& module, InitValues values) {
  LEVIN_CHECK(module != nullptr, "accelerator.module",
              "got an empty module pointer, wanted a module");
  if (fake_) graph::drop_memory(*module);
  if (automatic_ != nullptr && !automatic_->is_settled()) {
    automatic_->add(*module);
    if (modules_.empty() && automatic_->choose()) use_new_strategy();
  }
  if (precision_.parameters && is_on_meta(*module)) materialize(*module, {.values = values});
  precision_.convert(*module);
  strategy_->setup(*module, device_, values);
  detail::return_freed_memory();  // frees the old values of a module that has moved
  seed_by_rank();
  const bool known = std::find(modules_.begin(), modules_.end(), module) != modules_.end();
  if (!known) modules_.push_back(module);
  ++generation_;
  parameters_ = name_parameters();
}

ForwardConditions Engine::place_for_evaluation(const std::shared_ptr<torch::nn::Module>& module) {
  LEVIN_CHECK(module != nullptr, "accelerator.module",
              "got an empty module pointer, wanted a module");
  LEVIN_CHECK(xla_ == nullptr, "accelerator.evaluation_mode",
              "got evaluation_mode with XLA devices, where the strategy places each module; leave "
              "evaluation_mode out");
  if (fake_) graph::drop_memory(*module);
  if (is_on_meta(*module)) materialize(*module, {.values = InitValues::kSeeded});
  precision_.convert(*module);
  module->to(device_);
  return make_forward_conditions({precision_, device_.type(), nullptr, nullptr});
}

// Modules are built from one seed; dropout and augmentation then differ from rank to rank. Rank 0
// draws what one process alone would.
void Engine::seed_by_rank() {
  if (std::exchange(seeded_by_rank_, true) || process_index() == 0) return;
  const auto seed = derive_seed(static_cast<uint64_t>(current_seed()), kRankStream,
                                static_cast<uint64_t>(process_index()));
  seed_everything(static_cast<int64_t>(seed >> 1));
}

std::vector<NamedTensor> Engine::name_parameters() const {
  std::vector<NamedTensor> all;
  std::unordered_set<const c10::TensorImpl*> seen;  // two modules may share one
  for (size_t i = 0; i < modules_.size(); ++i) {
    for (NamedTensor& parameter : levin::named_parameters(*modules_[i])) {
      if (!seen.insert(parameter.tensor.unsafeGetTensorImpl()).second) continue;
      if (modules_.size() > 1) parameter.name = std::to_string(i) + "." + parameter.name;
      all.push_back(std::move(parameter));
    }
  }
  return all;
}

// Parameters added or replaced since then would not be trained, and ranks would not agree on them.
void Engine::check_prepared() const {
  std::unordered_set<const c10::TensorImpl*> known;
  for (const NamedTensor& parameter : parameters_) {
    known.insert(parameter.tensor.unsafeGetTensorImpl());
  }
  for (const NamedTensor& parameter : name_parameters()) {
    LEVIN_CHECK(
        !parameter.tensor.requires_grad() || known.contains(parameter.tensor.unsafeGetTensorImpl()),
        "accelerator.parameters",
        "parameter {} was added to its module or replaced after prepare, so no optimizer has it; "
        "build the full module before prepare, or call free_memory() and prepare everything again",
        parameter.name);
  }
}

std::vector<NamedTensor> Engine::named_state() const {
  std::vector<NamedTensor> state = parameters_;
  for (size_t i = 0; i < modules_.size(); ++i) {
    const std::string prefix = modules_.size() > 1 ? std::to_string(i) + "." : "";
    for (const auto& buffer : modules_[i]->named_buffers()) {
      state.push_back({prefix + buffer.key(), buffer.value()});
    }
  }
  for (const PreparedOptimizer& optimizer : optimizers_) {
    for (NamedTensor& tensor : optimizer.optimizer().named_state()) {
      state.push_back(std::move(tensor));
    }
  }
  for (NamedTensor& tensor : strategy_->recorded_state()) state.push_back(std::move(tensor));
  return state;
}

std::vector<NamedTensor> Engine::parameters_for(const OptimizerConfig& config) const {
  if (config.module() == nullptr) {
    LEVIN_CHECK(modules_.size() == 1 || config.pattern() != "*", "accelerator.optimizer",
                "{} is bound to no module, but {} modules are prepared; bind it with "
                "optim::{}(...).of(module)",
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
    std::vector<NamedTensor> own = bound(levin::named_parameters(*module));
    if (own.size() == parameters.size() && !own.empty()) return own;
  }
  LEVIN_CHECK(!parameters.empty(), "accelerator.optimizer",
              "{} is bound to a module that was not prepared; give that module to prepare, too",
              config.name());
  return parameters;
}

std::vector<PreparedOptimizer> Engine::prepare_optimizers(
    const std::vector<OptimizerConfig>& configs, int64_t total_steps, int64_t total_epochs) {
  detail::check_same_options(world(), detail::optimizers_as_text(configs), {});
  std::vector<PreparedOptimizer> prepared;
  for (OptimizerConfig config : configs) {
    config.keep_state_in(state_memory());
    if (options_.engine.master_weights) config.master_weights();
    using enum Schedule::Interval;
    const auto interval = config.schedule() ? config.schedule()->interval : kStep;
    const int64_t own_steps = total_steps < 0 ? -1 : total_steps / config.frequency();
    const int64_t total = interval == kStep ? own_steps : interval == kEpoch ? total_epochs : -1;
    prepared.push_back(
        make_prepared_optimizer(strategy_->build_optimizer(config, parameters_for(config)),
                                config.schedule(), config.frequency(), total, stepping_));
  }
  optimizers_.insert(optimizers_.end(), prepared.begin(), prepared.end());
  optimizers_changed();
  if (state_memory_ != nullptr) detail::say_where_state_is(*state_memory_);
  return prepared;
}

void Engine::optimizers_changed() {
  prepare_toggle(optimizers_);
  ++generation_;
  const bool accumulates =
      options_.accumulation_steps() > 1 || options_.engine.train_batch_size > 0;
  if (!precision_.scales_loss && !accumulates) return;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const PreparedOptimizer& optimizer : optimizers_) {
    for (const NamedTensor& parameter : optimizer.optimizer().parameters()) {
      LEVIN_CHECK(
          seen.insert(parameter.tensor.unsafeGetTensorImpl()).second, "accelerator.optimizer",
          "parameter {} belongs to two optimizers, and each would {}; give it to one optimizer",
          parameter.name,
          precision_.scales_loss ? "divide its gradient by the loss scale"
                                 : "scale its gradient in an incomplete accumulation window");
    }
  }
}

const std::shared_ptr<optim::StateMemory>& Engine::state_memory() {
  if (state_memory_ == nullptr) state_memory_ = detail::open_state_memory(options_, device_);
  return state_memory_;
}

std::shared_ptr<Strategy> Engine::new_strategy() {
  detail::check_offload(options_, device_);  // before the file is made
  const bool offloads_parameters = options_.engine.offload.state == "parameters";
  return make_strategy(options_.strategy,
                       {.group = world(),
                        .ddp = options_.engine.ddp,
                        .fsdp = options_.engine.fsdp,
                        .xla = xla_,
                        .parameter_file = offloads_parameters ? state_memory()->file() : nullptr,
                        .on_gpu = device_.is_cuda(),
                        .recordable = compiles()});
}

ForwardConditions Engine::forward_conditions(bool synchronizes) const {
  return make_forward_conditions(
      {precision_, device_.type(), synchronizes ? synced_ : nullptr, strategy_});
}

void Engine::rest() {
  if (!modules_.empty()) strategy_->rest();
}

void Engine::free_memory() {
  ++generation_;
  if (!modules_.empty()) strategy_->release();
  strategy_.reset();
  state_memory_.reset();
  if (automatic_ != nullptr) automatic_->begin_anew();
  use_new_strategy();
  modules_.clear();
  parameters_.clear();
  optimizers_.clear();
  loaders_.clear();
  schedules_.clear();
}

}  // namespace levin
