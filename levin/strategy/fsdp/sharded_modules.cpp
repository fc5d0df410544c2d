#include "levin/strategy/fsdp/sharded_modules.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/meta/init_on_meta.h"
#include "levin/module/optimizer_config.h"
#include "levin/shard/sharded_tensor.h"
#include "levin/strategy/ddp/agreement.h"
#include "levin/strategy/fsdp/fsdp_mesh.h"
#include "levin/strategy/fsdp/resharding.h"

namespace levin::fsdp {
namespace {

bool is_of_sizes(std::string_view what) {
  constexpr std::array<std::string_view, 4> kWords = {"size", "shape", "dimension", "numel"};
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return what.find(word) != std::string_view::npos; });
}

double megabytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

ShardedModules::ShardedModules(std::string_view strategy, const comm::DeviceMesh& mesh,
                               Hosts* hosts, bool shares_memory,
                               std::shared_ptr<files::ScratchFile> file, const FsdpOptions& options)
    : strategy_(strategy),
      group_(mesh.flat()),
      mesh_(mesh),
      hosts_(hosts),
      shares_memory_(shares_memory),
      file_(std::move(file)),
      options_(options),
      unmet_(ignored_patterns(options)) {}

void ShardedModules::shard(
    torch::nn::Module& module, at::Device device, InitValues values,
    const std::function<void(Unit& unit, const Resharding& resharding)>& add) {
  std::erase_if(unmet_, [&](const std::string& pattern) {
    return std::ranges::any_of(named_parameters(module), [&](const NamedTensor& each) {
      return matches(pattern, each.name);
    });
  });
  keep_base(module, device);
  const Plan plan = own_parameters(module);
  std::vector<std::unique_ptr<Unit>> fresh;
  for (const UnitPlan& unit : plan.units) {
    fresh.push_back(std::make_unique<Unit>(unit.name, unit.parameters, mesh_, options_of(unit)));
  }
  for (const auto& unit : fresh) unit->take_memory(device);
  make_own_rows(module, fresh, device, values);
  for (const auto& unit : fresh) unit->place();
  place_replicated(module, plan.replicated, device);
  newest_ = units_.size();
  for (size_t i = 0; i < fresh.size(); ++i) {
    add(*fresh[i], resharding_of(plan.units[i]));
    units_.push_back(std::move(fresh[i]));
  }
  watch_writes();
  replicated_.insert(replicated_.end(), plan.replicated.begin(), plan.replicated.end());
}

void ShardedModules::log_newest() const {
  if (group_.rank() != 0) return;
  int64_t bytes = 0, own = 0;
  const Unit* largest = nullptr;
  int64_t in_files = 0;
  for (const NamedTensor& each : in_files_) in_files += static_cast<int64_t>(each.tensor.nbytes());
  if (in_files > 0) {
    log::info("{}: {:.3g} MB of frozen parameters stay memory-mapped from their files", strategy_,
              megabytes(in_files));
  }
  for (size_t i = newest_; i < units_.size(); ++i) {
    bytes += units_[i]->bytes();
    own += static_cast<int64_t>(units_[i]->memory().own().nbytes());
    if (largest == nullptr || units_[i]->bytes() > largest->bytes()) largest = units_[i].get();
  }
  if (largest == nullptr) return;
  log::info(
      "{}: {:.3g} MB of parameters in units of at most {:.3g} MB ({} units, the largest is {}), "
      "rank 0 holds {:.3g} MB, {}",
      strategy_, megabytes(bytes), megabytes(largest->bytes()), units_.size() - newest_,
      largest->name(), megabytes(own),
      file_ != nullptr ? "in a file, all-gathered at first use"
      : shares_memory_ ? "in memory shared by the ranks"
      : hosts_         ? "all-gathered at first use, into memory shared by the ranks of a host"
                       : "all-gathered at first use");
  if (options_.reshard_after_forward.is_set() && !frees_units()) {
    log::info(
        "{}: --fsdp-reshard-after-forward {} has no effect here, because ranks share the memory "
        "of parameters and free none of it after forward",
        strategy_, to_text(options_.reshard_after_forward));
  }
}

void ShardedModules::undo() {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor, at::Tensor>> full;  // the leaf, its values
  for (const auto& unit : units_) {
    for (const auto& parameter : unit->parameters()) {
      const at::Tensor& leaf = parameter->leaf();
      at::Tensor values = parameter->is_replaced() ? leaf.variable_data()
                          : shares_memory_         ? parameter->full().tensor().clone()
                                                   : at::Tensor();
      // All ranks take part in the gather, also if one of them needs no values.
      if (!shares_memory_) {
        const at::Tensor gathered = shard::sharded(leaf)->full();
        if (!values.defined()) values = gathered;
      }
      full.emplace_back(leaf, values);
    }
  }
  units_.clear();
  for (const auto& [leaf, values] : full) {
    leaf.mutable_grad().reset();
    leaf.set_data(values);
  }
  in_files_.clear();
  watch_.reset();
}

UnitOptions ShardedModules::options_of(const UnitPlan& unit) const {
  return {.cut = options_.cut == "owned" ? CutAt::kParameters : CutAt::kRows,
          .memory = {.shared = shares_memory_, .hosts = hosts_, .file = file_},
          .reduce_dtype = reduce_dtype_of(options_, unit.options.reduce_dtype,
                                          unit.parameters.front().tensor.scalar_type())};
}

/// All ranks call it.
Resharding ShardedModules::resharding_of(const UnitPlan& unit) {
  if (!frees_units()) return {.stays = unit.is_rest};
  comm::ProcessGroup& shards = shard_group(mesh_);
  // One rank fetches its parameters too, from a file.
  if (shards.size() == 1) {
    return {.stays = stays_gathered(options_, unit.options.reshard_after_forward, unit.is_rest)};
  }
  const int64_t count = ranks_after_forward(options_, unit.options.reshard_after_forward,
                                            unit.is_rest, unit.name, shards.size());
  if (count == 1) return {.stays = true};
  if (count == shards.size()) return {};
  if (!near_.contains(count)) {
    for (int64_t first = 0; first < shards.size(); first += count) {
      std::vector<int64_t> ranks(static_cast<size_t>(count));
      std::iota(ranks.begin(), ranks.end(), first);
      comm::ProcessGroup near = shards.subgroup(ranks);
      if (near.size() > 1) near_.emplace(count, std::move(near));
    }
  }
  return {.near = near_.at(count)};
}

/// Does nothing for a GPU, which computes with tensors in its own memory.
void ShardedModules::keep_base(const torch::nn::Module& module, at::Device device) {
  if (!device.is_cpu()) return;
  const auto same = ddp::same_base(group_, module, /*in_place=*/true);
  for (const NamedTensor& parameter : named_parameters(module)) {
    if (same.contains(parameter.tensor.unsafeGetTensorImpl())) in_files_.push_back(parameter);
  }
}

void ShardedModules::check_parameters() const {
  LEVIN_CHECK(unmet_.empty(), "strategy.fsdp.ignored_params",
              "got '{}' in --fsdp-ignored-params, but no parameter has a name that matches it",
              unmet_.front());
  for (const NamedTensor& parameter : in_files_) {
    LEVIN_CHECK(!parameter.tensor.requires_grad(), "strategy.fsdp.unfrozen",
                "parameter {} was frozen when strategy '{}' sharded the module, so it stayed "
                "memory-mapped from its file and is not sharded; unfreeze it before prepare or "
                "fit, or set --strategy ddp",
                parameter.name, strategy_);
  }
}

/// A parameter that two modules share is the first one's.
Plan ShardedModules::own_parameters(const torch::nn::Module& module) const {
  Plan plan = plan_units(module, options_);
  std::unordered_set<const c10::TensorImpl*> taken;
  for (const auto& unit : units_) {
    for (const auto& parameter : unit->parameters()) {
      taken.insert(parameter->leaf().unsafeGetTensorImpl());
    }
  }
  for (const auto* others : {&replicated_, &in_files_}) {
    for (const NamedTensor& each : *others) taken.insert(each.tensor.unsafeGetTensorImpl());
  }
  const auto is_taken = [&](const NamedTensor& each) {
    return taken.contains(each.tensor.unsafeGetTensorImpl());
  };
  for (UnitPlan& unit : plan.units) std::erase_if(unit.parameters, is_taken);
  std::erase_if(plan.units, [](const UnitPlan& unit) { return unit.parameters.empty(); });
  std::erase_if(plan.replicated, is_taken);
  return plan;
}

/// Materializes only this rank's rows of a module that was built on the meta device.
void ShardedModules::make_own_rows(torch::nn::Module& module,
                                   const std::vector<std::unique_ptr<Unit>>& units,
                                   at::Device device, InitValues values) const {
  if (!is_on_meta(module)) return;
  std::map<std::string, std::pair<const Unit*, size_t>, std::less<>> places;
  for (const auto& unit : units) {
    for (size_t i = 0; i < unit->num_parameters(); ++i) {
      places[unit->parameter_name(i)] = {unit.get(), i};
    }
  }
  const auto rows = [&](const std::string& name, const at::Tensor&) -> std::optional<RowRange> {
    const auto place = places.find(name);
    if (place == places.end()) return std::nullopt;
    return place->second.first->own_rows(place->second.second);
  };
  const auto made = [&](const std::string& name, const at::Tensor&) {
    const auto place = places.find(name);
    if (place != places.end()) place->second.first->place_rows(place->second.second);
  };
  materialize(module, {.device = device, .values = values, .rows = rows, .made = made});
}

/// Buffers, and parameters without rows.
void ShardedModules::place_replicated(torch::nn::Module& module,
                                      const std::vector<NamedTensor>& parameters,
                                      at::Device device) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters) tensors.push_back(parameter.tensor);
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.defined()) tensors.push_back(buffer);
  }
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device() != device) tensor.set_data(tensor.to(device));
  }
  ddp::broadcast_from_first(group_, tensors);
}

void ShardedModules::watch_writes() {
  if (watch_ == nullptr) watch_ = std::make_unique<WriteWatch>(group_.rank());
  for (size_t i = newest_; i < units_.size(); ++i) {
    const UnitMemory& memory = units_[i]->memory();
    if (!memory.mapped().defined()) continue;
    for (size_t k = 0; k < memory.parameters().size(); ++k) {
      watch_->add(*memory.parameters()[k],
                  memory.mapped().narrow(0, memory.layout().offset(k), memory.layout().numel(k)));
    }
  }
}

std::string ShardedModules::explain(std::string_view what) const {
  if (units_.empty()) return "";
  if (what.starts_with("Can't detach views in-place")) {
    return Error("strategy.fsdp.optimizer",
                 "zero_grad of an unprepared torch::optim optimizer met gradients of a sharded "
                 "model; give the optimizer to prepare, and call step and zero_grad of the "
                 "optimizer that prepare returns")
        .what();
  }
  if (!is_of_sizes(what)) return "";
  const shard::ShardedParameter& parameter = *units_.front()->parameters().front();
  return Error("strategy.fsdp.outside",
               fmt::format(
                   "outside of the prepared model's forward pass, a rank holds only its shard of a "
                   "parameter ({} is {} here, the full shape is {}); if you called the module "
                   "itself (net->forward), call the prepared model's forward",
                   parameter.name(), c10::str(parameter.rows().sizes()),
                   c10::str(at::IntArrayRef(parameter.sizes()))))
      .what();
}

}  // namespace levin::fsdp
