#include "levin/strategy/fsdp/gradients/whole_gradients.h"

#include <ATen/ops/full.h>

#include <utility>

namespace levin::fsdp {

WholeGradients::WholeGradients(std::vector<NamedTensor> parameters) {
  for (NamedTensor& parameter : parameters) {
    if (parameter.tensor.numel() > 0) members_.push_back({std::move(parameter.tensor)});
  }
}

void WholeGradients::begin() {
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

void WholeGradients::keep() {
  for (Member& member : members_) {
    if (!member.parameter.requires_grad() || !member.aside.defined()) continue;
    at::Tensor& gradient = member.parameter.mutable_grad();
    if (gradient.defined()) continue;
    gradient = std::exchange(member.aside, at::Tensor());
    member.is_summed = true;
  }
}

void WholeGradients::put(double* numbers) const {
  for (size_t i = 0; i < members_.size(); ++i) {
    const at::Tensor& gradient = members_[i].parameter.grad();
    if (!members_[i].parameter.requires_grad() || !gradient.defined()) continue;
    const auto value = gradient.item().toComplexDouble();
    numbers[3 * i] = 1;
    numbers[3 * i + 1] = value.real();
    numbers[3 * i + 2] = value.imag();
  }
}

bool WholeGradients::take(const double* numbers, double share) {
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

void WholeGradients::abandon() {
  for (Member& member : members_) {
    if (!member.parameter.requires_grad()) continue;
    member.aside.reset();
    member.parameter.mutable_grad().reset();
    member.is_summed = false;
  }
}

}  // namespace levin::fsdp
