#include "levin/accelerator/engine/automatic_strategy.h"

#include <ATen/DeviceAccelerator.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/memory/memory_limits.h"
#include "levin/files/memory_map.h"
#include "levin/module/parameters.h"
#include "levin/strategy/fsdp/fsdp_mesh.h"

namespace levin::detail {
namespace {

constexpr double kGiga = 1e9;

bool shards(const forecast::Setting& setting) { return setting.strategy != "ddp"; }

/// Returns whether the tensor has memory of its own on the device.
bool lies_on(const at::Tensor& tensor, at::Device device) {
  return tensor.device() == device && tensor.has_storage() &&
         !(device.is_cpu() && files::is_mapped(tensor.const_data_ptr()));
}

bool is_mapped_and_frozen(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.has_storage() && !tensor.requires_grad() &&
         files::is_mapped(tensor.const_data_ptr());
}

/// Ranks of a machine share what its limits leave.
double free_memory_of_rank(at::Device device, int64_t ranks_here) {
  if (device.is_cuda()) {
    return static_cast<double>(
        at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
  }
  double least = -1.0;
  for (const MemoryLimit& limit : memory_limits()) {
    const auto left = static_cast<double>(std::max<int64_t>(limit.left, 0));
    if (limit.kills && (least < 0.0 || left < least)) least = left;
  }
  // A system that tells nothing does not limit.
  return least < 0.0 ? 1e18 : least / static_cast<double>(std::max<int64_t>(ranks_here, 1));
}

}  // namespace

std::vector<forecast::Setting> allowed_settings(const AcceleratorOptions& options,
                                                const RunPlace& run, int64_t batches) {
  const EngineOptions& engine = options.engine;
  const FsdpOptions defaults;
  const bool has_ddp = !changed_ddp_options(engine.ddp).empty();
  const bool has_fsdp = !changed_fsdp_options(engine.fsdp).empty();
  const bool offloads_parameters = engine.offload.state == "parameters";
  const bool records = engine.compile != "no";
  const bool on_cpu = run.device == at::kCPU;
  // A rank without a batch cannot gather parameters, and a recorded one needs all ranks too.
  const bool is_even =
      options.dataloader_config.even_batches || (on_cpu && run.backend == "shm" && !records);
  const bool can_record = !records || (on_cpu && batches == 1);
  std::vector<forecast::Setting> settings = forecast::automatic_settings(run.ranks);
  if (!engine.fsdp.mesh.empty()) {
    const comm::MeshShape shape = fsdp::fsdp_mesh_shape(engine.fsdp.mesh, run.ranks, run.num_nodes);
    const forecast::Mesh mesh{.replicate = shape.axes().size() > 1 ? shape.axes().front().size : 1,
                              .shard = shape.axes().back().size};
    for (forecast::Setting& setting : settings) {
      if (shards(setting)) setting.mesh = mesh;
    }
  }
  std::erase_if(settings, [&](const forecast::Setting& setting) {
    const bool is_stage = setting.strategy == "zero" && setting.zero_stage < 3;
    if (!shards(setting)) return has_fsdp || offloads_parameters;
    if (has_ddp || !is_even || !can_record || (offloads_parameters && is_stage)) return true;
    return engine.fsdp.zero_stage != defaults.zero_stage &&
           !(setting.strategy == "zero" && setting.zero_stage == engine.fsdp.zero_stage);
  });
  // Options that exclude each other are an error of the strategy that is made.
  if (settings.empty())
    return {forecast::setting_of(has_fsdp ? "fsdp" : "ddp", {.replicate = run.ranks})};
  return settings;
}

AutomaticStrategy::AutomaticStrategy(AcceleratorOptions& options, Processes& processes,
                                     at::Device device, const Precision& precision)
    : options_(options),
      processes_(processes),
      device_(device),
      precision_(precision),
      given_stage_(options.engine.fsdp.zero_stage) {
  begin_anew();
}

void AutomaticStrategy::begin_anew() {
  description_ = {};
  parameters_.clear();
  cannot_shard_.clear();
  settled_ = false;
  options_.engine.fsdp.zero_stage = given_stage_;
  take(settings(/*batches=*/1).front());
}

std::vector<forecast::Setting> AutomaticStrategy::settings(int64_t batches) const {
  AcceleratorOptions given = options_;
  given.engine.fsdp.zero_stage = given_stage_;
  return allowed_settings(given,
                          {.ranks = processes_.num_processes(),
                           .num_nodes = given.num_nodes,
                           .device = device_.type(),
                           .backend = processes_.world().backend()},
                          batches);
}

bool AutomaticStrategy::take(const forecast::Setting& setting) {
  const int64_t stage = setting.strategy == "zero" ? setting.zero_stage : given_stage_;
  const bool is_other =
      options_.strategy != setting.strategy || options_.engine.fsdp.zero_stage != stage;
  options_.strategy = setting.strategy;
  options_.engine.fsdp.zero_stage = stage;
  return is_other;
}

void AutomaticStrategy::add(const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> known;
  for (const at::Tensor& parameter : parameters_) known.insert(parameter.unsafeGetTensorImpl());
  for (const auto& buffer : module.buffers()) {
    if (buffer.defined()) description_.buffer_bytes += static_cast<int64_t>(buffer.nbytes());
  }
  forecast::Description own;
  try {
    // The module belongs to others; nothing of it is kept.
    const std::shared_ptr<torch::nn::Module> borrowed(const_cast<torch::nn::Module*>(&module),
                                                      [](auto*) {});
    own = forecast::describe({borrowed}, options_.engine.fsdp);
  } catch (const Error& error) {
    cannot_shard_ = error.text();
    return;
  }
  const std::vector<NamedTensor> tensors = named_parameters(module);
  const auto first_unit = std::ssize(description_.units);
  for (const forecast::PlannedUnit& unit : own.units) description_.units.push_back(unit);
  size_t next = 0;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const NamedTensor& named : tensors) {
    const at::Tensor& tensor = named.tensor;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    forecast::PlannedParameter parameter = own.parameters[next++];
    if (known.contains(tensor.unsafeGetTensorImpl()) || is_mapped_and_frozen(tensor)) continue;
    if (parameter.unit >= 0) parameter.unit += first_unit;
    const bool converts = precision_.parameters && c10::isFloatingType(parameter.type);
    if (converts) parameter.type = *precision_.parameters;
    description_.parameters.push_back(std::move(parameter));
    parameters_.push_back(tensor);
  }
}

bool AutomaticStrategy::choose() {
  if (settled_) return false;
  forecast::Description description = description_;
  for (forecast::PlannedParameter& parameter : description.parameters) parameter.trains = false;
  std::vector<int64_t> no_state(description.parameters.size(), 0);
  return decide(std::move(description), std::move(no_state), /*batches=*/1, /*says=*/false);
}

bool AutomaticStrategy::choose(const std::vector<OptimizerConfig>& configs, int64_t batches) {
  if (std::exchange(settled_, true)) return false;
  forecast::Description description = description_;
  for (size_t i = 0; i < parameters_.size(); ++i) {  // a callback may have frozen some since then
    description.parameters[i].trains = parameters_[i].requires_grad();
  }
  description.batches = batches;
  const bool offloads = options_.engine.offload.state != "no";
  std::vector<int64_t> state =
      offloads ? std::vector<int64_t>(parameters_.size(), 0)
               : forecast::state_bytes_of(description, configs, options_.engine.master_weights);
  return decide(std::move(description), std::move(state), batches, /*says=*/true);
}

bool AutomaticStrategy::decide(forecast::Description description, std::vector<int64_t> state_bytes,
                               int64_t batches, bool says) {
  const std::vector<forecast::Setting> allowed = settings(batches);
  State mine;
  mine.set("memory", own_memory_bytes()).set("can_shard", cannot_shard_.empty());
  double memory = -1.0;
  bool can_shard = true;
  for (const State& rank : processes_.gather_object(mine)) {
    const double bytes = rank.number("memory");
    if (memory < 0.0 || bytes < memory) memory = bytes;
    can_shard = can_shard && rank.boolean("can_shard");
  }
  forecast::AutomaticChoice choice;
  if (can_shard) {
    description.fsdp = options_.engine.fsdp;
    description.ddp = options_.engine.ddp;
    choice = forecast::choose_unrecorded(description, state_bytes, allowed, cluster(), memory);
  } else {
    choice.reason = fmt::format(
        "{}: {}", allowed.front().name(),
        cannot_shard_.empty() ? "another rank cannot shard its parameters" : cannot_shard_);
  }
  // Rank 0's choice, if models differ: the strategy that is made then says how.
  State chosen;
  chosen.set("chosen", static_cast<int64_t>(choice.chosen));
  const auto place = static_cast<size_t>(processes_.broadcast_object(chosen).integer("chosen"));
  TORCH_INTERNAL_ASSERT(place < allowed.size(), "rank 0 chose from other strategies");
  if (says && processes_.is_main_process()) {
    if (choice.fits) log::info("strategy auto: {}", choice.reason);
    if (!choice.fits) log::warn("strategy auto: {}", choice.reason);
  }
  return take(allowed[place]);
}

forecast::Cluster AutomaticStrategy::cluster() const {
  forecast::Cluster cluster = forecast::read_cluster("cpu");
  if (device_.is_cuda()) cluster.device = "gpu";
  const std::string& backend = processes_.world().backend();
  cluster.inside.backend = cluster.across.backend = device_.is_cuda() ? "nccl" : backend;
  cluster.ranks_per_node = processes_.rank().local_world_size;
  return cluster;
}

/// What the parameters take already, whole or as rows, is there for them.
double AutomaticStrategy::own_memory_bytes() const {
  const double given = options_.engine.max_memory_gb;
  if (given > 0.0) return given * kGiga;
  double bytes = free_memory_of_rank(device_, processes_.rank().local_world_size);
  for (const at::Tensor& parameter : parameters_) {
    if (lies_on(parameter, device_)) bytes += static_cast<double>(parameter.nbytes());
  }
  return bytes;
}

}  // namespace levin::detail
