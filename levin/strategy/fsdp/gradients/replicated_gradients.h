#pragma once
// ReplicatedGradients: gradients of parameters that are not sharded (0-dim ones), summed over the ranks
// in one exchange with the flags that say which parameters were used.
//
//   replicated.begin();  levin::backward(loss);  replicated.put(numbers);
//   group.all_reduce(numbers, ReduceOp::kSum);
//   replicated.take(numbers, 1.0 / group.size());      // .grad is the mean

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "levin/module/parameters.h"

namespace levin::fsdp {

class ReplicatedGradients {
 public:
  /// parameters: of one element at most, the same on every rank.
  explicit ReplicatedGradients(std::vector<NamedTensor> parameters) {
    for (NamedTensor& parameter : parameters) {
      if (parameter.tensor.numel() > 0) members_.push_back({std::move(parameter.tensor)});
    }
  }

  /// Numbers that an exchange carries for these.
  int64_t num_exchanged() const { return 3 * std::ssize(members_); }

  /// Call it before a backward: puts a gradient that was summed over the ranks aside, so that it is
  /// not summed again.
  void begin() {
    for (Member& member : members_) {
      if (!member.parameter.requires_grad()) continue;
      at::Tensor& gradient = member.parameter.mutable_grad();
      if (!gradient.defined()) {  // zero_grad()
        member.aside.reset();
      } else if (member.is_summed) {
        member.aside = std::exchange(gradient, at::Tensor());
      }
      member.is_summed = false;
    }
  }

  /// Call it after a backward that does not synchronize: .grad is this rank's own, or the earlier
  /// sum if there is none.
  void keep() {
    for (Member& member : members_) {
      if (!member.parameter.requires_grad() || !member.aside.defined()) continue;
      at::Tensor& gradient = member.parameter.mutable_grad();
      if (gradient.defined()) continue;
      gradient = std::exchange(member.aside, at::Tensor());
      member.is_summed = true;
    }
  }

  /// Call it after a backward that synchronizes: writes a flag, a real and an imaginary part for
  /// each.
  void put(double* numbers) const {
    for (size_t i = 0; i < members_.size(); ++i) {
      const at::Tensor& gradient = members_[i].parameter.grad();
      if (!members_[i].parameter.requires_grad() || !gradient.defined()) continue;
      const auto value = gradient.item().toComplexDouble();
      numbers[3 * i] = 1;
      numbers[3 * i + 1] = value.real();
      numbers[3 * i + 2] = value.imag();
    }
  }

  /// Sets .grad to the gradient that was put aside plus the sums times share. Returns whether any
  /// rank had a gradient.
  bool take(const double* numbers, double share) {
    bool any = false;
    for (size_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      if (!member.parameter.requires_grad()) continue;
      at::Tensor& gradient = member.parameter.mutable_grad();
      if (numbers[3 * i] != 0) {
        any = true;
        const auto options = member.parameter.options().requires_grad(false);
        const double real = numbers[3 * i + 1] * share, imaginary = numbers[3 * i + 2] * share;
        const at::Scalar sum = member.parameter.is_complex()
                                   ? at::Scalar(c10::complex<double>(real, imaginary))
                                   : at::Scalar(real);
        gradient = at::full(member.parameter.sizes(), sum, options);
        if (member.aside.defined()) gradient.add_(member.aside);
      } else if (member.aside.defined()) {
        gradient = member.aside;
      }
      member.aside.reset();
      member.is_summed = gradient.defined();
    }
    return any;
  }

  /// Call it after a backward that threw: drops all gradients.
  void abandon() {
    for (Member& member : members_) {
      if (!member.parameter.requires_grad()) continue;
      member.aside.reset();
      member.parameter.mutable_grad().reset();
      member.is_summed = false;
    }
  }

 private:
  struct Member {
    at::Tensor parameter;
    bool is_summed = false;  ///< .grad is the same on all ranks
    at::Tensor aside = {};   ///< the sum before this backward
  };

  std::vector<Member> members_;
};

}  // namespace levin::fsdp
