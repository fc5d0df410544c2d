// NAdam, RAdam, Lion, Adafactor and Muon, operator for operator as in their originals in Python.

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "levin/base/check.h"
#include "levin/optim/plain.h"

namespace levin::optim {
namespace {

using Slots = std::vector<std::pair<std::string_view, at::Tensor>>;

Slots average_slots(const at::Tensor& parameter) {
  return {{"exp_avg", at::zeros_like(parameter)}, {"exp_avg_sq", at::zeros_like(parameter)}};
}

/// Applies the weight decay and the sign of an option `maximize`, and returns the gradient.
template <class Options>
at::Tensor decayed(const Options& options, const at::Tensor& parameter, const at::Tensor& gradient,
                   const ParameterGroup& group) {
  at::Tensor result = options.maximize ? -gradient : gradient;
  if (group.weight_decay == 0.0) return result;
  if (options.decoupled_weight_decay) {
    parameter.mul_(1.0 - group.lr * group.weight_decay);
    return result;
  }
  return result.add(parameter, group.weight_decay);
}

/// torch/optim/nadam.py, _single_tensor_nadam.
class NAdam final : public PlainRule {
 public:
  explicit NAdam(const NAdamOptions& options) : options_(options) {}
  Slots slots_of(const at::Tensor& parameter) const override { return average_slots(parameter); }
  bool keeps_product() const override { return true; }

  void update(const at::Tensor& parameter, const at::Tensor& raw, PlainState& state,
              ParameterGroup& group) const override {
    const auto [beta1, beta2] = options_.betas;
    const auto step = static_cast<double>(state.steps);
    const at::Tensor gradient = decayed(options_, parameter, raw, group);
    const at::Tensor &average = state.slots[0].second, &squares = state.slots[1].second;
    const double mu = momentum_at(step), mu_next = momentum_at(step + 1.0);
    state.mu_product *= mu;
    average.lerp_(gradient, 1.0 - beta1);
    squares.mul_(beta2).addcmul_(gradient, gradient, 1.0 - beta2);
    const at::Tensor denominator =
        squares.div(1.0 - std::pow(beta2, step)).sqrt_().add_(options_.eps);
    parameter.addcdiv_(gradient, denominator, -group.lr * (1.0 - mu) / (1.0 - state.mu_product));
    parameter.addcdiv_(average, denominator,
                       -group.lr * mu_next / (1.0 - state.mu_product * mu_next));
  }

 private:
  double momentum_at(double step) const {
    return options_.betas.first * (1.0 - 0.5 * std::pow(0.96, step * options_.momentum_decay));
  }
  NAdamOptions options_;
};

/// torch/optim/radam.py, _single_tensor_radam.
class RAdam final : public PlainRule {
 public:
  explicit RAdam(const RAdamOptions& options) : options_(options) {}
  Slots slots_of(const at::Tensor& parameter) const override { return average_slots(parameter); }

  void update(const at::Tensor& parameter, const at::Tensor& raw, PlainState& state,
              ParameterGroup& group) const override {
    const auto [beta1, beta2] = options_.betas;
    const auto step = static_cast<double>(state.steps);
    const at::Tensor gradient = decayed(options_, parameter, raw, group);
    const at::Tensor &average = state.slots[0].second, &squares = state.slots[1].second;
    average.lerp_(gradient, 1.0 - beta1);
    squares.mul_(beta2).addcmul_(gradient, gradient, 1.0 - beta2);
    const double correction2 = 1.0 - std::pow(beta2, step);
    const at::Tensor corrected = average / (1.0 - std::pow(beta1, step));
    const double rho_inf = 2.0 / (1.0 - beta2) - 1.0;
    const double rho = rho_inf - 2.0 * step * std::pow(beta2, step) / correction2;
    if (rho <= 5.0) {  // too few squares so far: their variance is not known
      parameter.add_(corrected, -group.lr);
      return;
    }
    const double rectified =
        std::sqrt((rho - 4.0) * (rho - 2.0) * rho_inf / ((rho_inf - 4.0) * (rho_inf - 2.0) * rho));
    const at::Tensor denominator = squares.sqrt().add_(options_.eps);
    parameter.addcdiv_(corrected, denominator, -group.lr * std::sqrt(correction2) * rectified);
  }

 private:
  RAdamOptions options_;
};

/// Algorithm 2 of the paper.
class Lion final : public PlainRule {
 public:
  explicit Lion(const LionOptions& options) : options_(options) {}
  Slots slots_of(const at::Tensor& parameter) const override {
    return {{"exp_avg", at::zeros_like(parameter)}};
  }

  void update(const at::Tensor& parameter, const at::Tensor& gradient, PlainState& state,
              ParameterGroup& group) const override {
    const auto [beta1, beta2] = options_.betas;
    const at::Tensor& momentum = state.slots[0].second;
    parameter.mul_(1.0 - group.lr * group.weight_decay);
    parameter.add_(momentum.lerp(gradient, 1.0 - beta1).sign_(), -group.lr);
    momentum.lerp_(gradient, 1.0 - beta2);
  }

 private:
  LionOptions options_;
};

/// transformers/optimization.py, Adafactor.
class Adafactor final : public PlainRule {
 public:
  explicit Adafactor(const AdafactorOptions& options) : options_(options) {}
  bool needs_whole() const override { return true; }

  Slots slots_of(const at::Tensor& parameter) const override {
    const at::TensorOptions options = parameter.options().dtype(type_of(parameter));
    const at::IntArrayRef sizes = parameter.sizes();
    Slots slots;
    if (parameter.dim() >= 2) {
      std::vector<int64_t> columns(sizes.begin(), sizes.end() - 2);
      columns.push_back(sizes.back());
      slots.emplace_back("exp_avg_sq_row",
                         at::zeros(sizes.slice(0, sizes.size() - 1), options.requires_grad(false)));
      slots.emplace_back("exp_avg_sq_col", at::zeros(columns, options.requires_grad(false)));
    } else {
      slots.emplace_back("exp_avg_sq", at::zeros(sizes, options.requires_grad(false)));
    }
    if (options_.beta1) {
      slots.emplace_back("exp_avg", at::zeros(sizes, options.requires_grad(false)));
    }
    return slots;
  }

  void update(const at::Tensor& parameter, const at::Tensor& raw, PlainState& state,
              ParameterGroup& group) const override {
    const at::Tensor gradient = raw.to(type_of(parameter));
    const at::Tensor weight = parameter.detach().to(type_of(parameter));
    const auto step = static_cast<double>(state.steps);
    if (options_.relative_step) {
      const double least = options_.warmup_init ? 1e-6 * step : 1e-2;
      group.lr = std::min(least, 1.0 / std::sqrt(step));
    }
    // A tensor, for the device is not waited for.
    at::Tensor lr = at::full({}, group.lr, weight.options());
    if (options_.scale_parameter) lr = rms(weight).clamp_min(options_.eps.second) * group.lr;

    const double beta2 = 1.0 - std::pow(step, options_.decay_rate);
    at::Tensor change = gradient.square() + options_.eps.first;
    if (parameter.dim() >= 2) {
      const at::Tensor &rows = state.slots[0].second, &columns = state.slots[1].second;
      rows.mul_(beta2).add_(change.mean(-1), 1.0 - beta2);
      columns.mul_(beta2).add_(change.mean(-2), 1.0 - beta2);
      const at::Tensor by_row = (rows / rows.mean(-1, /*keepdim=*/true)).rsqrt_().unsqueeze(-1);
      change = by_row.mul(columns.unsqueeze(-2).rsqrt()).mul_(gradient);
    } else {
      const at::Tensor& squares = state.slots[0].second;
      squares.mul_(beta2).add_(change, 1.0 - beta2);
      change = squares.rsqrt().mul_(gradient);
    }
    change.div_((rms(change) / options_.clip_threshold).clamp_(1.0));
    change.mul_(lr);
    if (options_.beta1) {
      const at::Tensor& average = state.slots.back().second;
      average.mul_(*options_.beta1).add_(change, 1.0 - *options_.beta1);
      change = average;
    }
    if (group.weight_decay != 0.0) weight.sub_(weight * (lr * group.weight_decay));
    weight.sub_(change);
    if (parameter.scalar_type() != weight.scalar_type()) parameter.copy_(weight);
  }

 private:
  /// Half-precision parameters are updated in float32.
  static at::ScalarType type_of(const at::Tensor& parameter) {
    const at::ScalarType type = parameter.scalar_type();
    return at::isReducedFloatingType(type) ? at::kFloat : type;
  }
  static at::Tensor rms(const at::Tensor& tensor) {
    return tensor.norm(2) / std::sqrt(static_cast<double>(tensor.numel()));
  }
  AdafactorOptions options_;
};

/// torch/optim/_muon.py, _single_tensor_muon.
class Muon final : public PlainRule {
 public:
  explicit Muon(MuonOptions options) : options_(std::move(options)) {}
  bool needs_whole() const override { return true; }
  Slots slots_of(const at::Tensor& parameter) const override {
    return {{"momentum_buffer", at::zeros_like(parameter)}};
  }
  void check(const NamedTensor& parameter) const override {
    LEVIN_CHECK(parameter.tensor.dim() == 2, "optim.muon",
                "muon trains matrices, but {} has the shape {}; give muon the matrices by "
                "parameters_if() and the rest to adamw",
                parameter.name, c10::str(parameter.tensor.sizes()));
  }

  void update(const at::Tensor& parameter, const at::Tensor& gradient, PlainState& state,
              ParameterGroup& group) const override {
    const at::Tensor& buffer = state.slots[0].second;
    buffer.lerp_(gradient, 1.0 - options_.momentum);
    const at::Tensor direction =
        options_.nesterov ? gradient.lerp(buffer, options_.momentum) : buffer;
    const at::Tensor change = orthogonal(direction);
    const auto rows = static_cast<double>(parameter.size(0));
    const auto columns = static_cast<double>(parameter.size(1));
    const double ratio = options_.adjust_lr_fn == "match_rms_adamw"
                             ? 0.2 * std::sqrt(std::max(rows, columns))
                             : std::sqrt(std::max(1.0, rows / columns));
    parameter.mul_(1.0 - group.lr * group.weight_decay);
    parameter.add_(change, -group.lr * ratio);
  }

 private:
  /// Newton-Schulz iteration in bfloat16.
  at::Tensor orthogonal(const at::Tensor& direction) const {
    const auto [a, b, c] = options_.ns_coefficients;
    const bool is_tall = direction.size(0) > direction.size(1);
    at::Tensor matrix = direction.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
    if (is_tall) matrix = matrix.t();
    matrix.div_(matrix.norm().clamp_min(options_.eps));
    for (int64_t i = 0; i < options_.ns_steps; ++i) {
      const at::Tensor gram = matrix.matmul(matrix.t());
      const at::Tensor update = at::addmm(gram, gram, gram, b, c);
      matrix = at::addmm(matrix, update, matrix, a);
    }
    return is_tall ? matrix.t() : matrix;
  }
  MuonOptions options_;
};

struct Make {
  template <class Options>
  std::unique_ptr<PlainRule> operator()(const Options&) const {
    return nullptr;
  }
  std::unique_ptr<PlainRule> operator()(const NAdamOptions& options) const {
    return std::make_unique<NAdam>(options);
  }
  std::unique_ptr<PlainRule> operator()(const RAdamOptions& options) const {
    return std::make_unique<RAdam>(options);
  }
  std::unique_ptr<PlainRule> operator()(const LionOptions& options) const {
    return std::make_unique<Lion>(options);
  }
  std::unique_ptr<PlainRule> operator()(const AdafactorOptions& options) const {
    return std::make_unique<Adafactor>(options);
  }
  std::unique_ptr<PlainRule> operator()(const MuonOptions& options) const {
    return std::make_unique<Muon>(options);
  }
};

}  // namespace

std::unique_ptr<PlainRule> make_plain_rule(const OptimizerConfig::Kind& kind) {
  return std::visit(Make(), kind);
}

}  // namespace levin::optim
