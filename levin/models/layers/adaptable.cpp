#include "levin/models/layers/adaptable.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <memory>

#include "levin/models/layers/adapted_product.h"

namespace levin::models {
namespace {

/// Holds one matrix of an adapter under PEFT's name.
struct AdapterMatrix : torch::nn::Module {};

at::Tensor place_matrix(torch::nn::Module& layer, const char* name, const at::Tensor& values) {
  const auto holder = layer.register_module(name, std::make_shared<AdapterMatrix>());
  return holder->register_parameter("weight", values);
}

}  // namespace

void Adaptable::add_lora(const LoraShape& shape) {
  shape_ = shape;
  const at::NoGradGuard no_grad;
  const auto options = weight().options().dtype(at::kFloat).requires_grad(false);
  // kaiming_uniform_(a = sqrt(5)) of [r, in]
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_width()));
  const at::Tensor a = at::empty({shape.r, in_width()}, options).uniform_(-bound, bound);
  a_ = place_matrix(*this, "lora_A", a);
  b_ = place_matrix(*this, "lora_B", at::zeros({out_width(), shape.r}, options));
  if (shape.dora)
    magnitude_ = register_parameter("lora_magnitude_vector", norms(at::zeros({1}, options)));
}

at::Tensor Adaptable::delta() const { return b_.matmul(a_) * shape_.scale; }

at::Tensor Adaptable::norms(const at::Tensor& added) const {
  return (rows(weight()).detach().to(at::kFloat) + added.detach()).norm(2, /*dim=*/1);
}

at::Tensor Adaptable::fused(const at::Tensor& x, const at::Tensor& bias) const {
  if (magnitude_.defined() || weight().requires_grad()) return {};
  return adapted_product(x, {.matrix = rows(weight()),
                             .bias = bias,
                             .a = a_,
                             .b = b_,
                             .scale = shape_.scale,
                             .dropout = is_training() ? shape_.dropout : 0});
}

at::Tensor Adaptable::adapted(const at::Tensor& x, const at::Tensor& base,
                              const at::Tensor& bias) const {
  const bool drops = shape_.dropout > 0 && is_training();
  const auto wide = at::dropout(x.to(a_.scalar_type()), shape_.dropout, drops);
  auto added = at::linear(at::linear(wide, a_), b_) * shape_.scale;
  if (!magnitude_.defined()) return base + added.to(base.scalar_type());
  // The norm counts as a number (section 4.3 of the paper).
  const auto factor = magnitude_ / norms(delta());
  at::Tensor plain;
  if (drops) {
    plain = at::linear(wide.to(weight().scalar_type()), rows(weight()));
  } else {
    plain = bias.defined() ? base - bias : base;
  }
  added = (factor - 1) * plain + factor * added;
  return base + added.to(base.scalar_type());
}

at::Tensor Adaptable::merged_weight() const {
  const at::NoGradGuard no_grad;
  const at::Tensor added = delta();
  auto merged = rows(weight()).to(at::kFloat) + added;
  if (magnitude_.defined()) merged = merged * (magnitude_ / norms(added)).unsqueeze(1);
  return rows(merged.to(weight().scalar_type())).contiguous();
}

void Adaptable::merge() {
  if (is_merged() || !has_lora()) return;
  const at::Tensor merged = merged_weight();
  before_merge_ = weight().detach().alias();
  weight().set_data(merged);
}

void Adaptable::unmerge() {
  if (!is_merged()) return;
  weight().set_data(before_merge_);
  before_merge_ = at::Tensor();
}

}  // namespace levin::models
