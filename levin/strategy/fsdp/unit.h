#pragma once
// Unit: parameters that are gathered, reduced and updated together, one behind the other in memory of
// their own, cut into a contiguous run of rows for each rank. A parameter stays the tensor that it
// was, with two sizes: this rank's rows, and, while something computes, the whole.
//
//   Unit unit("blocks.3", parameters, mesh, {});
//   unit.place(at::kCPU);
//   unit.enter();  net->forward(x);  unit.leave();

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/device_mesh.h"
#include "levin/module/parameters.h"
#include "levin/shard/sharded_tensor.h"
#include "levin/strategy/fsdp/cut.h"
#include "levin/strategy/fsdp/hosts.h"

namespace levin::fsdp {

/// A parameter in its unit.
struct Leaf {
  std::string name;
  at::Tensor parameter;
  std::vector<int64_t> sizes = {};    ///< sizes of the full parameter
  std::vector<int64_t> strides = {};  ///< so that rows lie one behind the other
  bool was_on_meta = false;           ///< when the unit was made: it gets values row by row
  Extent extent = {};
  std::vector<int64_t> rows_of_ranks = {};
  at::Tensor whole = {};  ///< in the unit's memory; not to be read while that is not there
  at::Tensor rows = {};   ///< this rank's, in memory that it writes
  std::optional<shard::ShardedParameter> divided = {};
  /// The node that accumulates gradients of the full sizes; none before the first forward pass with
  /// them.
  decltype(torch::autograd::Edge::function) accumulator = {};
  std::string unseen = {};   ///< error text for reading the full values while they are not here
  bool is_replaced = false;  ///< by another tensor, while it was whole
  int64_t version = 0;       ///< version of the parameter when the other ranks last knew its values

  int64_t first_row(int64_t rank) const;
};

/// Elements of a type from one cache line, or vector register, to the next.
int64_t alignment_of(at::ScalarType type);

struct UnitOptions {
  CutAt cut = CutAt::kRows;
  bool shares_memory = false;  ///< all ranks can map one memory
  Hosts* hosts = nullptr;      ///< or those of each host can; outlives the unit
};

class LEVIN_API Unit {
 public:
  /// parameters: of one type and device, with at least one row each, and no memory twice. Throws
  /// Error "strategy.fsdp.shared_memory" for two that overlap.
  Unit(std::string name, const std::vector<NamedTensor>& parameters, const comm::DeviceMesh& mesh,
       const UnitOptions& options);
  Unit(Unit&&) noexcept = default;
  Unit& operator=(Unit&&) noexcept = default;

  /// Moves the parameters into the unit's memory: rank 0's values of full parameters, and this
  /// rank's rows of parameters that were on the meta device, which are rows already. All ranks call
  /// it.
  void place(at::Device device);

  const std::string& name() const { return name_; }
  int64_t rank() const { return mesh_.rank(); }
  at::ScalarType type() const { return leaves_.front().parameter.scalar_type(); }
  std::vector<Leaf>& leaves() { return leaves_; }
  const std::vector<Leaf>& leaves() const { return leaves_; }
  /// Elements of each rank's run.
  const std::vector<int64_t>& runs() const { return runs_; }
  int64_t numel() const { return numel_; }
  int64_t bytes() const { return numel_ * static_cast<int64_t>(c10::elementSize(type())); }
  /// This rank's run, to be written.
  const at::Tensor& own() const { return own_; }

  /// Parameters take their whole sizes, or those of their rows again. Throw Error
  /// "strategy.fsdp.outside" for a parameter with a graph of its rows that is alive, and
  /// "strategy.fsdp.replaced" for one that was given other memory.
  void enter();
  void leave();
  /// Between runs: a parameter shows the whole to whoever reads it, or says that it is not here. wake() takes
  /// over what was put in its place meanwhile.
  void rest();
  void wake();
  /// The parameter was given another tensor at rest, which is not a part of this any more.
  static bool is_replaced_at_rest(const Leaf& leaf);
  /// Takes the values in this memory of numel() elements; detach() leaves none.
  void attach(const at::Tensor& memory);
  void detach();
  /// Memory of the whole that is mapped, with values or without; undefined where it is not shared.
  const at::Tensor& mapped() const { return mapped_; }
  /// Returns whether all ranks share the unit's memory, so that nothing is ever fetched.
  bool is_always_here() const { return options_.shares_memory; }
  /// With memory shared by a host's ranks: the part that this rank's place fetches, which contains
  /// its own run.
  const at::Tensor& part_of_place() const { return part_of_place_; }
  std::vector<int64_t> runs_of_place() const;

  /// While parameters are rows: returns the error that enter() would throw for a graph of them;
  /// empty: there is none.
  std::string graph_of_rows() const;
  /// Returns whether this rank's rows were written to since note_values().
  bool is_written() const;
  void note_values();

 private:
  void take_memory(const at::TensorOptions& kind);
  at::Tensor values_of_first_rank(const at::TensorOptions& kind) const;
  void check_outside(const Leaf& leaf) const;
  void check_not_replaced(Leaf& leaf) const;
  void adopt(Leaf& leaf);

  std::string name_;
  comm::DeviceMesh mesh_;
  UnitOptions options_;
  std::vector<Leaf> leaves_;
  std::vector<int64_t> runs_;
  int64_t numel_ = 0;
  at::Tensor mapped_;
  at::Tensor part_of_place_;
  at::Tensor own_;
};

}  // namespace levin::fsdp
