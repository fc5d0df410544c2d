#pragma once
// ShardedModules: shards modules over the ranks, unit by unit, and makes them ordinary modules again.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/comm/device_mesh.h"
#include "levin/strategy/fsdp/gather/unit_cache.h"
#include "levin/strategy/fsdp/hosts.h"
#include "levin/strategy/fsdp/plan_units.h"
#include "levin/strategy/fsdp/unit.h"
#include "levin/strategy/fsdp/write_watch.h"
#include "levin/strategy/options.h"
#include "levin/strategy/strategy.h"

namespace levin::fsdp {

class ShardedModules {
 public:
  /// `hosts` is null if all ranks are on one; it outlives this. `file` is null without --offload
  /// parameters.
  ShardedModules(std::string_view strategy, const comm::DeviceMesh& mesh, Hosts* hosts,
                 bool shares_memory, std::shared_ptr<files::ScratchFile> file,
                 const FsdpOptions& options);

  /// Shards one module more. Its parameters are rows from now on, on that device; buffers, and
  /// parameters without rows, are rank 0's. All ranks call it, and may read each other's rows once all
  /// have. It calls add with each new unit.
  void shard(torch::nn::Module& module, at::Device device, InitValues values,
             const std::function<void(Unit& unit, const Resharding& resharding)>& add);
  /// Logs where the parameters of the newest module are.
  void log_newest() const;
  /// Makes parameters full tensors of each rank again. If nothing is shared all ranks call it.
  void undo();

  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  /// Parameters that are not sharded: those without rows, the same on every rank.
  const std::vector<NamedTensor>& replicated() const { return replicated_; }
  /// Call it before a pass. Throws Error "strategy.fsdp.unfrozen" for a parameter that stayed in its
  /// file's map, as it was frozen, and is to have gradients now, and "strategy.fsdp.ignored_params" for
  /// a pattern that no parameter matches.
  void check_parameters() const;
  /// Explains an error of LibTorch about parameters that are rows: what() of Error "strategy.fsdp.outside" for an
  /// error of sizes, and of "strategy.fsdp.optimizer" for torch::optim's zero_grad on gradients that are
  /// views; "" for other errors.
  std::string explain(std::string_view what) const;

 private:
  UnitOptions options_of(const UnitPlan& unit) const;
  Resharding resharding_of(const UnitPlan& unit);
  /// Returns whether gathered units are in buffers of each rank, which can be freed.
  bool frees_units() const { return !shares_memory_ && hosts_ == nullptr; }
  void keep_base(const torch::nn::Module& module, at::Device device);
  Plan own_parameters(const torch::nn::Module& module) const;
  void make_own_rows(torch::nn::Module& module, const std::vector<std::unique_ptr<Unit>>& units,
                     at::Device device, InitValues values) const;
  void place_replicated(torch::nn::Module& module, const std::vector<NamedTensor>& parameters,
                        at::Device device);
  void watch_writes();

  std::string strategy_;
  comm::ProcessGroup group_;
  comm::DeviceMesh mesh_;
  Hosts* hosts_;
  bool shares_memory_;
  std::shared_ptr<files::ScratchFile> file_;  ///< of the rows, under --offload parameters
  FsdpOptions options_;
  std::vector<std::string> unmet_;  ///< patterns of ignored_params that no parameter has met
  std::vector<std::unique_ptr<Unit>> units_;
  size_t newest_ = 0;  ///< the first unit of the newest module
  std::vector<NamedTensor> replicated_;
  /// Frozen, and in maps of files of the same contents: in no unit, as a host's ranks have one copy already.
  std::vector<NamedTensor> in_files_;
  std::unique_ptr<WriteWatch> watch_;
  std::map<int64_t, comm::ProcessGroup> near_;  ///< so many neighbouring ranks, with this one
};

}  // namespace levin::fsdp
