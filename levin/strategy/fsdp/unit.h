#pragma once
// Unit: parameters that are gathered, reduced and updated together (FSDP2's FSDPParamGroup), one
// behind the other in a UnitMemory, cut into a contiguous run of rows for each rank.
//
//   Unit unit("blocks.3", parameters, mesh, {});
//   unit.take_memory(at::kCPU);  unit.place();
//   unit.begin_pass();  net->forward(x);  unit.end_pass();

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/comm/device_mesh.h"
#include "levin/module/parameters.h"
#include "levin/shard/sharded_parameter.h"
#include "levin/strategy/fsdp/unit_layout.h"
#include "levin/strategy/fsdp/unit_memory.h"

namespace levin::fsdp {

struct UnitOptions {
  CutAt cut = CutAt::kRows;
  MemoryPlace memory = {};
  std::optional<at::ScalarType> reduce_dtype = {};  ///< of gradients; none: the parameters' dtype
};

class LEVIN_API Unit {
 public:
  /// parameters: of one type and device, with at least one row each, and no memory twice. They are cut
  /// over the last axis of the mesh. Throws Error "strategy.fsdp.shared_memory" for two that overlap.
  Unit(std::string name, const std::vector<NamedTensor>& parameters, const comm::DeviceMesh& mesh,
       const UnitOptions& options);

  /// Takes the unit's memory. All ranks call it.
  void take_memory(at::Device device);
  /// Moves the parameters into that memory: rank 0's values of full parameters, and this rank's rows of
  /// parameters that were on the meta device, which are rows already. All ranks call it.
  void place();
  /// Moves the rows of a parameter that was on the meta device there now, so that they are in memory once.
  void place_rows(size_t parameter) const;
  /// Rows that this rank has of a parameter, also before place().
  RowRange own_rows(size_t parameter) const;

  const std::string& name() const { return name_; }
  at::ScalarType type() const { return type_; }
  /// The dtype in which gradients are reduced over the ranks.
  at::ScalarType reduce_dtype() const { return options_.reduce_dtype.value_or(type_); }
  size_t num_parameters() const { return sources_.size(); }
  const std::string& parameter_name(size_t parameter) const { return sources_[parameter].name; }
  /// The parameters, once they are placed.
  const std::vector<std::unique_ptr<shard::ShardedParameter>>& parameters() const {
    return parameters_;
  }
  const UnitLayout& layout() const { return layout_; }
  UnitMemory& memory() const { return *memory_; }
  /// The ranks over which the unit is cut.
  const comm::ProcessGroup& shard_group() const { return shard_group_; }
  int64_t bytes() const { return layout_.numel() * static_cast<int64_t>(c10::elementSize(type_)); }

  /// Parameters take their full sizes, or those of their rows again. Throw what
  /// ShardedParameter::check_before_pass throws.
  void begin_pass();
  void end_pass();
  /// Between runs: a parameter shows the full values to whoever reads it, or says that they are not here.
  void rest();
  void wake();

  /// While parameters are rows: returns the error that begin_pass() would throw for a graph of them;
  /// empty: there is none.
  std::string graph_of_rows() const;
  /// Returns whether this rank's rows were written to since note_values().
  bool is_written() const;
  void note_values();

 private:
  /// A parameter before it is placed.
  struct Source {
    std::string name;
    at::Tensor leaf;
    std::vector<int64_t> sizes;    ///< sizes of the full parameter
    std::vector<int64_t> strides;  ///< so that rows lie one behind the other
    bool was_on_meta = false;      ///< it gets values row by row
  };

  static std::vector<Source> sources_of(const std::vector<NamedTensor>& parameters);
  UnitLayout cut() const;
  void put_values_of_first_rank();
  at::Tensor rows_of(size_t parameter) const;
  std::unique_ptr<shard::ShardedParameter> sharded(size_t number) const;

  std::string name_;
  comm::DeviceMesh mesh_;
  comm::ProcessGroup shard_group_;
  UnitOptions options_;
  std::vector<Source> sources_;
  at::ScalarType type_;
  UnitLayout layout_;
  std::vector<std::unique_ptr<shard::ShardedParameter>> parameters_;
  std::unique_ptr<UnitMemory> memory_;
  at::Device device_ = at::kCPU;
};

}  // namespace levin::fsdp
