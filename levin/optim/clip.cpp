#include "levin/optim/clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <optional>

#include "levin/base/check.h"

namespace levin::optim {
namespace {

/// The values of a sparse gradient, each row of which then occurs once.
at::Tensor values_of(const NamedTensor& parameter) {
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  LEVIN_CHECK(gradient.is_sparse(), "optim.clip",
              "the gradient of {} is laid out as {}, wanted dense or sparse (COO); convert it, or "
              "do not clip it",
              parameter.name, c10::str(gradient.layout()));
  gradient = gradient.coalesce();
  return gradient._values();
}

/// Those that have a value.
std::vector<at::Tensor> gradients_of(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const NamedTensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient.layout() == at::kStrided ? gradient.detach()
                                                          : values_of(parameter));
    if (gradients.back().numel() == 0) gradients.pop_back();
  }
  return gradients;
}

bool is_half(const at::Tensor& tensor) { return at::isReducedFloatingType(tensor.scalar_type()); }

/// Those of half types in float32: theirs could not hold them.
std::vector<at::Tensor> norms_of(const std::vector<at::Tensor>& gradients, double norm_type) {
  if (std::ranges::none_of(gradients, is_half)) return at::_foreach_norm(gradients, norm_type);
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients) {
    const auto type = is_half(gradient) ? std::optional(at::kFloat) : std::nullopt;
    norms.push_back(at::linalg_vector_norm(gradient, norm_type, std::nullopt, false, type));
  }
  return norms;
}

}  // namespace

at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                          double norm_type) {
  LEVIN_CHECK(max_norm >= 0.0 && norm_type > 0.0, "optim.clip",
              "got max_norm = {} and norm_type = {}, wanted at least 0 and above 0", max_norm,
              norm_type);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return at::zeros({});
  std::vector<at::Tensor> norms = norms_of(gradients, norm_type);
  const bool in_double = std::ranges::any_of(
      norms, [](const at::Tensor& norm) { return norm.scalar_type() == at::kDouble; });
  const auto kind = norms.front().options().dtype(in_double ? at::kDouble : at::kFloat);
  for (at::Tensor& norm : norms) norm = norm.to(kind);
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms), norm_type);
  // Multiplying by 1 where nothing is to be clipped costs less than asking the device.
  const at::Tensor scale = (max_norm / (total + 1e-6)).clamp_max(1.0);
  at::_foreach_mul_(gradients, scale);
  return total;
}

void clip_grad_value(const std::vector<NamedTensor>& parameters, double clip_value) {
  LEVIN_CHECK(clip_value >= 0.0, "optim.clip", "got clip_value = {}, wanted at least 0",
              clip_value);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return;
  at::_foreach_clamp_min_(gradients, -clip_value);
  at::_foreach_clamp_max_(gradients, clip_value);
}

void scale_grad(const std::vector<NamedTensor>& parameters, double factor) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (!gradients.empty()) at::_foreach_mul_(gradients, factor);
}

void divide_grad(const std::vector<NamedTensor>& parameters, const at::Tensor& by) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return;
  const at::Tensor factor = at::where(by == 0, at::zeros_like(by), by.reciprocal());
  at::_foreach_mul_(gradients, factor.to(gradients.front().options()));
}

}  // namespace levin::optim
