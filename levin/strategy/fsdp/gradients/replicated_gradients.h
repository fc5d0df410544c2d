#pragma once
// ReplicatedGradients: gradients of parameters that are not sharded (0-dim ones, ignored_params), which
// are reduced over all ranks. Those of one element go with the flags that say which parameters were
// used; each larger one is all-reduced.
//
//   replicated.begin();  levin::backward(loss);  replicated.start(numbers, group);
//   group.all_reduce(numbers, ReduceOp::kSum);
//   replicated.take(numbers, 1.0 / group.size());      // .grad is the mean

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "levin/comm/operators.h"
#include "levin/comm/process_group.h"
#include "levin/module/parameters.h"

namespace levin::fsdp {

class ReplicatedGradients {
 public:
  /// parameters: the same on every rank. in_float32: half-precision gradients are summed in float32.
  /// by_operators: all of them are summed by operators that a recording has as nodes.
  ReplicatedGradients(std::vector<NamedTensor> parameters, bool in_float32, bool by_operators)
      : in_float32_(in_float32), by_operators_(by_operators) {
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
  /// each, and starts the sums of those with more than one element. All ranks call it.
  void start(double* numbers, comm::ProcessGroup& group) {
    for (size_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      if (!member.parameter.requires_grad()) continue;
      const at::Tensor& gradient = member.parameter.grad();
      numbers[3 * i] = gradient.defined() ? 1 : 0;
      if (by_operators_) {
        member.sum = to_sum(member);
        comm::call_all_reduce({member.sum}, group, ReduceOp::kSum);
      } else if (member.parameter.numel() > 1) {
        member.sum = to_sum(member);
        member.work = group.all_reduce(member.sum, ReduceOp::kSum, comm::Return::kAsync);
      } else if (gradient.defined()) {
        const auto value = gradient.item().toComplexDouble();
        numbers[3 * i + 1] = value.real();
        numbers[3 * i + 2] = value.imag();
      }
    }
  }

  /// Sets .grad to the gradient that was put aside plus the sums times share. Returns whether any
  /// rank had a gradient.
  bool take(const double* numbers, double share) {
    bool any = false;
    for (size_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      if (!member.parameter.requires_grad()) continue;
      member.work.wait();
      at::Tensor& gradient = member.parameter.mutable_grad();
      if (numbers[3 * i] != 0) {
        any = true;
        gradient = member.sum.defined() ? std::exchange(member.sum, at::Tensor())
                                              .mul_(share)
                                              .to(member.parameter.scalar_type())
                                        : scalar_sum(member.parameter, numbers + 3 * i, share);
        if (member.aside.defined()) gradient.add_(member.aside);
      } else {
        gradient = member.aside;
      }
      member.sum.reset();
      member.aside.reset();
      member.is_summed = gradient.defined();
    }
    return any;
  }

  /// Call it after a backward that threw: drops all gradients.
  void abandon() {
    for (Member& member : members_) {
      if (!member.parameter.requires_grad()) continue;
      member.work.wait();
      member.sum.reset();
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
    at::Tensor sum = {};     ///< of more than one element, while ranks add to it
    comm::Work work = {};
  };

  /// This rank's summand, in memory that may be written.
  at::Tensor to_sum(const Member& member) const {
    const at::Tensor& gradient = member.parameter.grad();
    const at::ScalarType own = member.parameter.scalar_type();
    const at::ScalarType type = in_float32_ && c10::isReducedFloatingType(own) ? at::kFloat : own;
    if (!gradient.defined()) return at::zeros_like(member.parameter, type).detach();
    const at::Tensor dense = gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
    return dense.detach().to(type, /*non_blocking=*/false, /*copy=*/true).contiguous();
  }

  static at::Tensor scalar_sum(const at::Tensor& parameter, const double* numbers, double share) {
    const double real = numbers[1] * share, imaginary = numbers[2] * share;
    const at::Scalar sum = parameter.is_complex()
                               ? at::Scalar(c10::complex<double>(real, imaginary))
                               : at::Scalar(real);
    return at::full(parameter.sizes(), sum, parameter.options().requires_grad(false));
  }

  bool in_float32_;
  bool by_operators_;
  std::vector<Member> members_;
};

}  // namespace levin::fsdp
