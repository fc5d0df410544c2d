#pragma once
// PowerSgd: gradients on their way as products of two thin matrices (Vogels et al. 2019). What is
// lost is added to the next gradient.
//
// Follows torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "levin/base/state.h"
#include "levin/comm/process_group.h"
#include "levin/module/parameters.h"

namespace levin::ddp {

class PowerSgd {
 public:
  struct Options {
    int64_t rank = 1;           ///< columns of the thin matrices
    int64_t start_step = 1000;  ///< synchronized backwards before it, reduced whole
    double least_gain = 2;      ///< matrices that shrink by less go whole
  };

  PowerSgd(comm::ProcessGroup group, const Options& options);

  /// Of those parameters gradients come too, under the next indices.
  void add(std::span<const NamedTensor> parameters);

  /// Counts a synchronized backward; false while gradients are to be reduced whole.
  bool begin_step();
  /// Whether the gradient of that index goes as thin matrices.
  bool compresses(size_t index) const;
  /// Replaces each gradient (of those that compresses() names) by the mean over the ranks, about.
  /// All ranks call it with the same indices.
  void reduce(std::span<const size_t> indices, const std::vector<at::Tensor>& gradients);

  /// {"step", "basis": {name: tensor}}. The errors, as large as the gradients and different on
  /// each rank, are not kept: a resumed run begins without.
  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  struct Matrix {
    std::string name = {};
    int64_t rows = 0, columns = 0;  ///< 0: goes whole
    at::Tensor basis = {};          ///< [columns, rank], kept from step to step
    at::Tensor error = {};          ///< [rows, columns], what the others have not heard of yet
  };

  void reduce_flat(std::vector<at::Tensor>& tensors);

  comm::ProcessGroup group_;
  Options options_;
  std::vector<Matrix> matrices_;
  int64_t step_ = 0;
};

}  // namespace levin::ddp
