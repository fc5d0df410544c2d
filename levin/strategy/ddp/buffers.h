#pragma once
// Buffers: the buffers of modules (batch norm's statistics), which ranks write apart from each
// other and which are rank 0's again when they agree.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "levin/comm/process_group.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::ddp {

/// A forward pass may have saved a buffer for a backward that is yet to come. Where a module writes
/// to it past autograd's version counters (batch norm does, whose backward does not look at it),
/// rank 0's value comes in past them too; other writes count as the module's own do.
class Buffers {
 public:
  Buffers() = default;
  explicit Buffers(const std::vector<const torch::nn::Module*>& modules);

  /// Broadcasts rank 0's value of each buffer that some rank has written to since the last call.
  /// All ranks call it.
  void synchronize(comm::ProcessGroup& group);
  /// Broadcasts all buffers by an operator that a recording has as a node.
  void broadcast(const comm::ProcessGroup& group);

 private:
  struct Entry {
    at::Tensor buffer;
    int64_t version = 0;  ///< as it was last agreed on
    /// So too, on the CPU; none before the first time. The version does not tell of every write.
    at::Tensor value;
  };

  static bool is_written(const Entry& entry);
  static at::Tensor target(const Entry& entry);
  void note();

  std::vector<Entry> entries_;
};

}  // namespace levin::ddp
