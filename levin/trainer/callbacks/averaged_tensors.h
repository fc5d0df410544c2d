#pragma once
// AveragedTensors: tensors of a module with an average of each, as torch.optim.swa_utils'
// AveragedModel has them. Not for users: weight_averaging and stochastic_weight_averaging keep one.
// Under a sharded strategy each rank averages its shards.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "levin/base/state.h"
#include "levin/module/parameters.h"
#include "levin/trainer/callbacks/callbacks.h"

namespace levin::detail {

class AveragedTensors {
 public:
  /// Begins with averages that equal the tensors, of which there are no updates yet.
  void begin(std::vector<NamedTensor> tensors);
  /// Takes up those of these tensors that have no average yet, with their values as averages:
  /// tensors that have been constant so far.
  void add(const std::vector<NamedTensor>& tensors);
  void clear();
  bool empty() const { return averages_.empty(); }
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t updates) { num_updates_ = updates; }

  /// Takes the tensors' values into their averages: the first values as they are, then by decay, by
  /// the function, or as their mean.
  void update(std::optional<double> decay, const AverageFunction& average);
  /// Exchanges the values of the module and the averages.
  void swap();
  bool is_swapped() const { return is_swapped_; }

  /// The tensors' values, by name.
  State values() const;
  /// The averages, by name.
  State averages() const;
  /// Replaces those of `weights` that have an average.
  void give_averages(State& weights) const;
  /// Both throw Error "trainer.weight_averaging" for a state of other tensors.
  void load_values(const State& values);
  void load_averages(const State& values);

 private:
  std::vector<at::Tensor> current() const;
  void load(const State& values, const std::vector<at::Tensor>& into) const;
  void note_written() const;

  std::vector<NamedTensor> tensors_;
  std::vector<at::Tensor> averages_;  ///< of this rank's values, by tensor
  int64_t num_updates_ = 0;
  bool is_swapped_ = false;  ///< the module holds the averages
};

}  // namespace levin::detail
