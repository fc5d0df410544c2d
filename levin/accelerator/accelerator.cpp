#include "levin/accelerator/accelerator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_set>

#include "levin/accelerator/device.h"
#include "levin/accelerator/host_memory.h"
#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/dispatched_loader.h"
#include "levin/optim/clip.h"
#include "levin/optim/torch_adapter.h"

namespace levin {
namespace {

constexpr uint64_t kRankStream = 0x72616e6b;  // "rank"

}  // namespace

void AcceleratorOptions::fields(FieldVisitor& field) {
  field("mixed_precision", mixed_precision, "no, bf16, fp16, bf16-true, 16-true or 64-true");
  field("gradient_accumulation_steps", gradient_accumulation_steps, "batches of an optimizer step");
  field("split_batches", dataloader_config.split_batches,
        "a loader's batch size is that of all processes together");
  field("dispatch_batches", dataloader_config.dispatch_batches,
        "the first process alone reads the data and hands out the batches");
  field("even_batches", dataloader_config.even_batches,
        "processes get equal counts of batches: samples repeat where the number does not divide");
  field("project_dir", project_dir, "folder of trackers, and of checkpoints without a path");
  field("automatic_checkpoint_naming", project_config.automatic_checkpoint_naming,
        "number the checkpoints of project_dir");
  field("total_limit", project_config.total_limit, "how many of those are kept; 0: all");
  field("step_scheduler_with_optimizer", step_scheduler_with_optimizer,
        "schedules move with the optimizer's steps");
  field("cpu", cpu, "use the CPU even where there is a GPU");
  field("accelerator", accelerator, "auto, cpu or gpu");
  field("strategy", strategy, "how parameters are kept over processes: auto, single or ddp");
  field("devices", devices, "processes on this machine; 0: as they were started, or 1");
  field("num_nodes", num_nodes, "machines");
  field("backend", backend,
        "what carries bytes between processes: auto, shm, gloo, mpi, hierarchical or "
        "hierarchical-mpi");
  field("comm_timeout_s", comm_timeout_s, "longest wait for other processes, seconds");
  field("comm_connect_timeout_s", comm_connect_timeout_s,
        "longest wait for all processes to come at the start, seconds");
  field("comm_check", comm_check,
        "compare each exchange between GPUs over the processes first, as it is between CPUs");
  field("use_distributed_sampler", use_distributed_sampler,
        "processes read different parts of the data");
  field("sync_batchnorm", sync_batchnorm, "batch norm over the batches of all processes");
  field("master_weights", master_weights, "update parameters of bf16-true and 16-true in float32");
  scaler.fields(field);
  loss_guard.fields(field);
  ddp.fields(field);
}

namespace {

WorldOptions world_options(const AcceleratorOptions& options, bool on_gpu = false) {
  return {.devices = options.devices,
          .num_nodes = options.num_nodes,
          .backend = options.backend,
          .timeout_s = options.comm_timeout_s,
          .connect_timeout_s = options.comm_connect_timeout_s,
          .on_gpu = on_gpu,
          .check = options.comm_check};
}

}  // namespace

Accelerator::Accelerator(AcceleratorOptions options)
    : Accelerator(options, join_launch(world_options(options))) {}

Accelerator::Accelerator(const AcceleratorOptions& options, const comm::Environment& environment)
    : Accelerator(options, environment,
                  select_device(options.cpu ? "cpu" : options.accelerator, environment.rank)) {}

Accelerator::Accelerator(const AcceleratorOptions& options, const comm::Environment& environment,
                         at::Device device)
    : Processes(environment.rank,
                connect_world(environment, world_options(options, device.is_cuda()))),
      options_(options),
      device_(device),
      precision_(parse_precision(options_.mixed_precision)),
      strategy_(make_strategy(options_.strategy, {.group = world(), .ddp = options_.ddp})),
      project_(options_.project_dir, options_.project_config),
      trackers_(options_.log_with, options_.project_dir, is_main_process()) {
  check_precision(precision_, device_, compute_capability(device_));
  LEVIN_CHECK(!options_.master_weights || precision_.has_half_parameters(), "accelerator.precision",
              "master_weights are of parameters in bfloat16 or float16 and {} has none; set "
              "--precision bf16-true, or leave out --master-weights",
              precision_.name);
  stepping_ = std::make_unique<Stepping>(
      *strategy_, world(),
      SteppingOptions{.gradient_accumulation_steps = options_.gradient_accumulation_steps,
                      .step_scheduler_with_optimizer = options_.step_scheduler_with_optimizer,
                      .scales_loss = precision_.scales_loss,
                      .scaler = options_.scaler,
                      .loss_guard = options_.loss_guard});
  if (device_.is_cpu()) detail::keep_freed_memory();
  if (options_.sync_batchnorm && num_processes() > 1) {
    synced_ = std::make_shared<comm::ProcessGroup>(world());
  }
}

Accelerator::~Accelerator() = default;

void Accelerator::prepare_module(const std::shared_ptr<torch::nn::Module>& module) {
  LEVIN_CHECK(module != nullptr, "accelerator.module",
              "got an empty module pointer, wanted a module");
  precision_.convert(*module);
  strategy_->setup(*module, device_);
  seed_by_rank();
  const bool known = std::find(modules_.begin(), modules_.end(), module) != modules_.end();
  if (!known) modules_.push_back(module);
  parameters_ = name_parameters();
}

// Modules are built from one seed; dropout and augmentation then differ from rank to rank. Rank 0
// draws what one process alone would.
void Accelerator::seed_by_rank() {
  if (std::exchange(seeded_by_rank_, true) || process_index() == 0) return;
  const auto seed = derive_seed(static_cast<uint64_t>(current_seed()), kRankStream,
                                static_cast<uint64_t>(process_index()));
  seed_everything(static_cast<int64_t>(seed >> 1));
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
  for (OptimizerConfig config : configs) {
    if (options_.master_weights) config.master_weights();
    prepared.emplace_back(strategy_->build_optimizer(config, parameters_for(config)),
                          config.schedule(), config.frequency(), total_steps, stepping_.get());
    stepping_->add(prepared.back().optimizer());
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

// The part of each process: the loader's own batch size is that of all together.
DataLoader Accelerator::split(const DataLoader& loader) const {
  DataLoaderOptions part = loader.options();
  LEVIN_CHECK(
      loader.dataset() != nullptr && part.batch_size % num_processes() == 0,
      "accelerator.split_batches",
      "batches of {} samples cannot be split over {} processes{}; set another batch_size, or "
      "split_batches = false",
      part.batch_size, num_processes(),
      loader.dataset() == nullptr ? " where they come from a stream" : "");
  part.batch_size /= num_processes();
  DataLoader own(loader.dataset(), std::move(part));
  own.load_state_dict(loader.state_dict());
  return own;
}

DataLoader Accelerator::prepare_loader(DataLoader loader, LoaderRole role) {
  const bool training = role == LoaderRole::kTraining;
  const bool even = training && options_.dataloader_config.even_batches;
  if (options_.dataloader_config.split_batches && num_processes() > 1) loader = split(loader);
  const DataSlice slice = options_.use_distributed_sampler ? strategy_->slice() : DataSlice();
  if (options_.dataloader_config.dispatch_batches) {
    LEVIN_CHECK(slice.world_size == num_processes(), "accelerator.dispatch_batches",
                "each batch would be split over {} processes that are to read the same data; set "
                "dispatch_batches = false or use_distributed_sampler = true",
                num_processes());
    loader = dispatched(loader, world(), even);
  } else {
    // The order of samples is rank 0's; a data set of another size on some rank is an error.
    if (num_processes() > 1) loader.load_state_dict(broadcast_object(loader.state_dict()));
    loader.set_slice(slice, even);
    if (training && slice.world_size > 1) {
      loader.end_together([world = world(), joining = joining_](bool ended) mutable {
        return *joining ? ended : world.any(ended);
      });
    }
  }
  if (device_.is_cuda() && !loader.options().pin_memory.has_value()) loader.set_pin_memory(true);
  if (training) loaders_.push_back(loader);
  return loader;
}

void Accelerator::in_step(const std::function<void()>& draws) {
  const State own = random_state();
  if (num_processes() > 1) load_random_state(broadcast_object(own));
  draws();
  if (!is_main_process()) load_random_state(own);
}

PreparedOptimizer Accelerator::prepare_torch_optimizer(
    std::shared_ptr<torch::optim::Optimizer> optimizer) {
  auto adapted = optim::adapt_torch_optimizer(std::move(optimizer), parameters_);
  optimizers_.emplace_back(std::move(adapted), std::nullopt, /*frequency=*/1, /*total_steps=*/-1,
                           stepping_.get());
  stepping_->add(optimizers_.back().optimizer());
  for (PreparedOptimizer& each : optimizers_) each.set_rivals(optimizers_);
  return optimizers_.back();
}

PreparedLoader Accelerator::prepared_loader(const DataLoader& loader) {
  DataLoader own = prepare_loader(loader, LoaderRole::kTraining);
  PreparedLoader::OnBatch check;
  if (!options_.dataloader_config.even_batches && num_processes() > 1 && own.dataset() != nullptr) {
    check = [this, joining = joining_](bool ended) {
      if (*joining) return;
      const at::Tensor left = at::full({1}, ended ? 0 : 1, at::kLong);
      const auto have_one = reduce(left, ReduceOp::kSum).item<int64_t>();
      LEVIN_CHECK(have_one == 0 || have_one == num_processes(), "accelerator.even_batches",
                  "{} of {} processes have a batch left and the others none; set even_batches = "
                  "true, or train in join_uneven_inputs",
                  have_one, num_processes());
    };
  }
  return {std::move(own), device_, in_use_, std::move(check)};
}

void Accelerator::join_uneven_inputs(const std::function<void()>& loop,
                                     const JoinOptions& options) {
  LEVIN_CHECK(synced_ == nullptr, "strategy.join",
              "batch norm over all processes needs a batch of each; set sync_batchnorm = false");
  strategy_->begin_join(!options.divide_by_initial_world_size);
  *joining_ = true;
  loop();
  *joining_ = false;
  const auto drop_gradients = [&] {
    for (PreparedOptimizer& optimizer : optimizers_) optimizer.optimizer().zero_grad();
  };
  // It makes the others' steps, so that weights and the optimizer's state stay theirs.
  for (drop_gradients(); strategy_->shadow_step(); drop_gradients()) {
    stepping_->begin_backward();
    for (PreparedOptimizer& optimizer : optimizers_) optimizer.step();
  }
}

void Accelerator::free_memory() {
  strategy_->forget();
  stepping_->forget();
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
  const SyncBatchNormGuard batch_norm(synced_.get());
  stepping_->backward(loss, synchronize);
  if (!reaches_parameters_) check_gradients();
}

// Once: a loop that forgot to prepare its module would train nothing and not say so.
void Accelerator::check_gradients() {
  reaches_parameters_ = std::ranges::any_of(
      parameters_, [](const NamedTensor& parameter) { return parameter.tensor.grad().defined(); });
  LEVIN_CHECK(
      reaches_parameters_ || parameters_.empty(), "accelerator.loss",
      "this loss depends on no parameter of a prepared module; give prepare the module that "
      "it was computed with");
}

AccumulateScope Accelerator::accumulate() {
  const auto loop = in_use_->current();
  const bool ends_epoch =
      options_.gradient_accumulation_steps > 1 && loop != nullptr && loop->at_end();
  return {*stepping_, ends_epoch};
}

void Accelerator::unscale_gradients() {
  for (const PreparedOptimizer& optimizer : optimizers_) unscale_gradients(optimizer);
}

void Accelerator::unscale_gradients(const PreparedOptimizer& optimizer) {
  stepping_->finish_gradients(optimizer.optimizer());
}

bool Accelerator::optimizer_step_was_skipped() const {
  return std::ranges::any_of(optimizers_, &PreparedOptimizer::step_was_skipped);
}

at::Tensor Accelerator::clip_grad_norm(double max_norm, double norm_type) {
  if (!sync_gradients()) return at::zeros({});
  unscale_gradients();
  return strategy_->clip_grad_norm(parameters_, max_norm, norm_type);
}

void Accelerator::clip_grad_value(double clip_value) {
  if (!sync_gradients()) return;
  unscale_gradients();
  strategy_->wait_gradients();
  optim::clip_grad_value(parameters_, clip_value);
}

at::Tensor Accelerator::gather_for_metrics(const at::Tensor& value) {
  LEVIN_CHECK(value.dim() > 0, "accelerator.gather",
              "got a scalar, wanted a tensor with a row for each sample of the batch");
  if (num_processes() == 1) return value;
  const at::Tensor counts = gather(at::full({1}, value.size(0), at::kLong));
  const int64_t most = counts.max().item<int64_t>();
  std::vector<int64_t> sizes = value.sizes().vec();
  sizes.front() = most;
  const at::Tensor padded = at::zeros(sizes, value.options());
  padded.narrow(0, 0, value.size(0)).copy_(value);
  sizes.insert(sizes.begin(), num_processes());
  // Sample k of rank r is number k * world_size + r of the batches together.
  const at::Tensor rows = gather(padded).view(sizes).transpose(0, 1);
  const at::Tensor is_there = at::arange(most).unsqueeze(1).lt(counts.unsqueeze(0));
  const at::Tensor all = rows.index({is_there.to(value.device())});
  const auto loop = in_use_->current();
  const int64_t repeated = loop == nullptr ? 0 : loop->padding();
  return all.narrow(0, 0, std::max<int64_t>(all.size(0) - repeated, 0));
}

}  // namespace levin
