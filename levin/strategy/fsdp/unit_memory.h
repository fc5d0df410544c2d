#pragma once
// UnitMemory: where the full values of a unit's parameters are, and how they come there. A class for
// each place: memory that all ranks share, memory that the ranks of each host share, buffers of this
// rank alone, and such buffers with the rows in a file (--offload parameters). Another one has some of
// the parameters in the dtype to which autocast casts them.
//
//   const auto memory = make_unit_memory(layout, at::kFloat, at::kCPU, group, {.shared = true});
//   memory->own().copy_(rows);
//   memory->set_parameters(parameters);
//   memory->start(buffer).wait();  memory->finish(buffer);       // full values can be read
//   memory->release();                                           // and can not any more

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/files/scratch/scratch_file.h"
#include "levin/shard/sharded_parameter.h"
#include "levin/strategy/fsdp/hosts.h"
#include "levin/strategy/fsdp/unit_layout.h"

namespace levin::fsdp {

/// Elements of a type from one cache line, or vector register, to the next.
int64_t alignment_of(at::ScalarType type);

class LEVIN_API UnitMemory {
 public:
  UnitMemory(UnitLayout layout, at::ScalarType type) : layout_(std::move(layout)), type_(type) {}
  virtual ~UnitMemory();
  UnitMemory(const UnitMemory&) = delete;
  UnitMemory& operator=(const UnitMemory&) = delete;

  /// Sets the parameters whose full values are here, in the order of the layout.
  virtual void set_parameters(std::vector<shard::ShardedParameter*> parameters);
  const std::vector<shard::ShardedParameter*>& parameters() const { return parameters_; }
  const UnitLayout& layout() const { return layout_; }
  at::ScalarType type() const { return type_; }
  int64_t bytes() const;
  /// This rank's run, to be written. Undefined in memory of another dtype, which is written from it.
  const at::Tensor& own() const { return own_; }

  /// Returns whether full values can be read at all times.
  virtual bool is_always_here() const { return false; }
  /// Memory of the full parameters that is mapped, with values or without; undefined if they come
  /// into a buffer.
  const at::Tensor& mapped() const { return mapped_; }
  /// Bytes of the buffer that start() needs.
  int64_t buffer_bytes() const { return mapped_.defined() ? 0 : bytes(); }
  /// Starts to fetch what this rank lacks. buffer: bytes, at least buffer_bytes() of them. All ranks
  /// that share the unit call it.
  virtual comm::Work start(const at::Tensor& buffer) = 0;
  /// Call it when that work is done: full values can be read.
  virtual void finish(const at::Tensor& buffer);
  /// Shows the full values of a buffer that was filled in another way than by start().
  void show(const at::Tensor& buffer) const { attach(typed(buffer)); }
  /// Full values are an error to read from now on.
  virtual void release();
  /// Call it after own() was read or written: if it is in a file, its pages leave memory.
  virtual void leave_memory() {}

 protected:
  void attach(const at::Tensor& memory) const;
  at::Tensor typed(const at::Tensor& buffer) const;

  at::Tensor own_;
  at::Tensor mapped_;

 private:
  UnitLayout layout_;
  at::ScalarType type_;
  std::vector<shard::ShardedParameter*> parameters_;
};

/// Where the memory of units is: which ranks can map one memory, or the file in which rows are.
struct MemoryPlace {
  bool shared = false;     ///< by all ranks
  Hosts* hosts = nullptr;  ///< shared by those of each host; outlives the memory
  std::shared_ptr<files::ScratchFile> file = nullptr;
};

/// Takes memory for a unit that is cut over the group's ranks. All of them call it.
LEVIN_API std::unique_ptr<UnitMemory> make_unit_memory(UnitLayout layout, at::ScalarType type,
                                                       at::Device device,
                                                       const comm::ProcessGroup& group,
                                                       const MemoryPlace& place);
/// Makes buffered memory of some parameters of a unit, in its dtype or another. The unit outlives it.
LEVIN_API std::unique_ptr<UnitMemory> make_cast_memory(UnitMemory& unit,
                                                       const std::vector<size_t>& parameters,
                                                       at::ScalarType type,
                                                       const comm::ProcessGroup& group);

}  // namespace levin::fsdp
