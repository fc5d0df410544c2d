#pragma once
// WholeGradients: gradients of parameters that are no part of a unit (0-dim ones), summed over the ranks in
// one exchange with the flags that say which parameters were used.
//
//   whole.begin();  levin::backward(loss);  whole.put(numbers);  group.all_reduce(numbers, ReduceOp::kSum);
//   whole.take(numbers, 1.0 / group.size());      // .grad is the mean

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "levin/module/parameters.h"

namespace levin::fsdp {

class WholeGradients {
 public:
  /// parameters: of one element at most, the same on every rank.
  explicit WholeGradients(std::vector<NamedTensor> parameters);

  /// Numbers that an exchange carries for these.
  int64_t num_exchanged() const { return 3 * std::ssize(members_); }

  /// Before a backward: a gradient that was summed over the ranks is put aside, so that it is not
  /// summed again.
  void begin();
  /// After one that does not synchronize: .grad is this rank's own, or what was summed before where
  /// nothing came.
  void keep();
  /// After one that does: a flag, a real and an imaginary part for each.
  void put(double* numbers) const;
  /// .grad is what was put aside, and the sums times share. Whether any rank had a gradient.
  bool take(const double* numbers, double share);
  /// After a backward that threw: there are no gradients.
  void abandon();

 private:
  struct Member {
    at::Tensor parameter;
    bool is_summed = false;  ///< .grad is the same on all ranks
    at::Tensor aside = {};   ///< what was summed before this backward
  };

  std::vector<Member> members_;
};

}  // namespace levin::fsdp
