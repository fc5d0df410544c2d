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

namespace levin {
namespace {

constexpr uint64_t kRankStream = 0x72616e6b;  // "rank"

}  // namespace

void AcceleratorOptions::fields(FieldVisitor& field) {
  field("mixed_precision", mixed_precision, "no or bf16");
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
  field("dispatch_batches", dispatch_batches,
        "the first process alone reads the data and hands out the batches");
  field("sync_batchnorm", sync_batchnorm, "batch norm over the batches of all processes");
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
    : options_(std::move(options)),
      environment_(join_launch(world_options(options_))),
      rank_(environment_.rank),
      device_(select_device(options_.cpu ? "cpu" : options_.accelerator, rank_)),
      precision_(parse_precision(options_.mixed_precision)),
      world_(connect_world(environment_, world_options(options_, device_.is_cuda()))),
      strategy_(make_strategy(options_.strategy, {.group = world_, .ddp = options_.ddp})) {
  if (device_.is_cpu()) detail::keep_freed_memory();
  if (options_.sync_batchnorm && rank_.world_size > 1) {
    synced_ = std::make_shared<comm::ProcessGroup>(world_);
  }
}

Accelerator::~Accelerator() = default;

void Accelerator::prepare_module(const std::shared_ptr<torch::nn::Module>& module) {
  LEVIN_CHECK(module != nullptr, "accelerator.module",
              "got an empty module pointer, wanted a module");
  strategy_->setup(*module, device_);
  seed_by_rank();
  const bool known = std::find(modules_.begin(), modules_.end(), module) != modules_.end();
  if (!known) modules_.push_back(module);
  parameters_ = name_parameters();
}

// Modules are built from one seed; dropout and augmentation then differ from rank to rank. Rank 0
// draws what one process alone would.
void Accelerator::seed_by_rank() {
  if (std::exchange(seeded_by_rank_, true) || rank_.rank == 0) return;
  const auto seed = derive_seed(static_cast<uint64_t>(current_seed()), kRankStream,
                                static_cast<uint64_t>(rank_.rank));
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
  const bool training = role == LoaderRole::kTraining;
  const DataSlice slice = options_.use_distributed_sampler ? strategy_->slice() : DataSlice();
  if (options_.dispatch_batches) {
    LEVIN_CHECK(slice.world_size == rank_.world_size, "accelerator.dispatch_batches",
                "each batch would be split over {} processes that are to read the same data; set "
                "dispatch_batches = false or use_distributed_sampler = true",
                rank_.world_size);
    loader = dispatched(loader, world_, /*even=*/training);
  } else {
    // The order of samples is rank 0's; a data set of another size on some rank is an error.
    if (rank_.world_size > 1) loader.load_state_dict(broadcast_object(loader.state_dict()));
    loader.set_slice(slice, /*even=*/training);
    if (training && slice.world_size > 1) {
      loader.end_together([world = world_, joining = joining_](bool ended) mutable {
        return *joining ? ended : world.any(ended);
      });
    }
  }
  if (device_.is_cuda() && !loader.options().pin_memory.has_value()) loader.set_pin_memory(true);
  if (training) loaders_.push_back(loader);
  return loader;
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
    for (PreparedOptimizer& optimizer : optimizers_) optimizer.zero_grad();
  };
  // It makes the others' steps, so that weights and the optimizer's state stay theirs.
  for (drop_gradients(); strategy_->shadow_step(); drop_gradients()) {
    for (PreparedOptimizer& optimizer : optimizers_) optimizer.step();
  }
}

void Accelerator::free_memory() {
  strategy_->forget();
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
  strategy_->backward(loss, synchronize);
}

at::Tensor Accelerator::clip_grad_norm(double max_norm, double norm_type) {
  return strategy_->clip_grad_norm(parameters_, max_norm, norm_type);
}

void Accelerator::clip_grad_value(double clip_value) {
  strategy_->wait_gradients();
  optim::clip_grad_value(parameters_, clip_value);
}

bool Accelerator::from_main(bool flag) { return world_.any(flag && is_main_process()); }

double Accelerator::from_main(double value) {
  const at::Tensor word = at::full({1}, value, at::kDouble);
  world_.broadcast(word, 0);
  return word.item<double>();
}

void Accelerator::local_main_first(const std::function<void()>& body) {
  if (rank_.local_rank == 0) body();
  wait_for_everyone();
}

at::Tensor Accelerator::reduce(const at::Tensor& value, ReduceOp op) {
  if (rank_.world_size == 1) return value;
  at::Tensor reduced = value.detach().clone();
  world_.all_reduce(reduced, op);
  return reduced;
}

at::Tensor Accelerator::gather(const at::Tensor& value) {
  if (rank_.world_size == 1) return value;
  std::vector<int64_t> sizes = value.sizes().vec();
  if (sizes.empty()) sizes.push_back(1);
  sizes.front() *= rank_.world_size;
  at::Tensor all = at::empty(sizes, value.options());
  world_.all_gather(all, value.contiguous());
  return all;
}

at::Tensor Accelerator::gather_for_metrics(const at::Tensor& value) {
  LEVIN_CHECK(value.dim() > 0, "accelerator.gather",
              "got a scalar, wanted a tensor with a row for each sample of the batch");
  if (rank_.world_size == 1) return value;
  const at::Tensor counts = gather(at::full({1}, value.size(0), at::kLong));
  const int64_t most = counts.max().item<int64_t>();
  std::vector<int64_t> sizes = value.sizes().vec();
  sizes.front() = most;
  const at::Tensor padded = at::zeros(sizes, value.options());
  padded.narrow(0, 0, value.size(0)).copy_(value);
  sizes.insert(sizes.begin(), rank_.world_size);
  // Sample k of rank r is number k * world_size + r of the batches together.
  const at::Tensor rows = gather(padded).view(sizes).transpose(0, 1);
  const at::Tensor is_there = at::arange(most).unsqueeze(1).lt(counts.unsqueeze(0));
  return rows.index({is_there.to(value.device())});
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

Checkpoint Accelerator::state_dict() {
  strategy_->settle();
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
      .set("strategy", strategy_->state_dict())
      .set("registered", std::move(registered));
  if (rank_.world_size > 1) {
    State own;
    own.set("random", random_state()).set("loaders", numbered(loaders_));
    State random, loaders;  // rank 0's stand above, where one process finds its own
    const std::vector<State> ranks = gather_object(own);
    for (size_t i = 1; i < ranks.size(); ++i) {
      random.set(std::to_string(i), ranks[i].child("random"));
      loaders.set(std::to_string(i), ranks[i].child("loaders"));
    }
    checkpoint.training.set("random_of_ranks", std::move(random))
        .set("loaders_of_ranks", std::move(loaders));
  }
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
  load_loaders(training);
  for (size_t i = 0; i < registered_.size(); ++i) {
    registered_[i].load(training.child("registered").child(std::to_string(i)));
  }
  if (training.contains("strategy")) strategy_->load_state_dict(training.child("strategy"));
  load_random_states(training);
}

// Each rank of a stream has a place of its own. Of other data, and with another number of ranks,
// all take rank 0's.
void Accelerator::load_loaders(const State& training) {
  State states = training.child("loaders");
  const State others =
      training.contains("loaders_of_ranks") ? training.child("loaders_of_ranks") : State();
  if (rank_.rank > 0 && std::ssize(others.values()) == rank_.world_size - 1) {
    const State& own = others.child(std::to_string(rank_.rank));
    for (const auto& [number, value] : own.values()) {
      if (own.child(number).contains("rank")) states.set(number, own.child(number));
    }
  }
  load_numbered("loaders", loaders_, states);
}

// With another number of ranks there is no going on as before: those beyond the first begin anew.
void Accelerator::load_random_states(const State& training) {
  const State others =
      training.contains("random_of_ranks") ? training.child("random_of_ranks") : State();
  const bool same = std::ssize(others.values()) == rank_.world_size - 1;
  if (rank_.rank == 0) {
    load_random_state(training.child("random"));
  } else if (same) {
    load_random_state(others.child(std::to_string(rank_.rank)));
  }
}

void Accelerator::save_state(const std::filesystem::path& folder) {
  write_on_main(folder, state_dict());
}

void Accelerator::write_on_main(const std::filesystem::path& folder, const Checkpoint& checkpoint) {
  if (rank_.world_size == 1) return save_checkpoint(folder, checkpoint);
  State outcome;
  try {
    if (is_main_process()) save_checkpoint(folder, checkpoint);
  } catch (const Error& error) {
    outcome.set("id", error.id()).set("text", error.text());
  }
  outcome = broadcast_object(outcome);
  if (outcome.empty()) return;
  throw Error(outcome.text("id"), "on rank 0: " + outcome.text("text"));
}

void Accelerator::load_state(const std::filesystem::path& folder) {
  load_state_dict(load_checkpoint(folder));
}

}  // namespace levin
