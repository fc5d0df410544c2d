#include "levin/optim/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "levin/base/check.h"

namespace levin::optim {
namespace {

/// The kernel takes those of one device and type together.
using GradientKind = std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType>;

std::map<GradientKind, std::vector<at::Tensor>> gradients_by_kind(const Optimizer& optimizer) {
  std::map<GradientKind, std::vector<at::Tensor>> kinds;
  for (const NamedTensor& parameter : optimizer.parameters()) {
    at::Tensor gradient = parameter.tensor.grad();
    if (!gradient.defined()) continue;
    LEVIN_CHECK(gradient.scalar_type() != at::kHalf, "optim.scaler.half",
                "the gradient of {} is in float16, wanted float32; keep parameters in float32 "
                "(--precision 16-mixed) or use no scaler (--precision 16-true)",
                parameter.name);
    if (gradient.is_sparse()) {
      // Rows that occur twice may overflow only in their sum.
      parameter.tensor.mutable_grad() = gradient = gradient.coalesce();
      gradient = gradient._values();
    }
    kinds[{gradient.device().type(), gradient.device().index(), gradient.scalar_type()}].push_back(
        gradient.detach());
  }
  return kinds;
}

}  // namespace

void GradScalerOptions::fields(FieldVisitor& field) {
  field("scaler_init_scale", init_scale, "16-mixed: initial loss scale");
  field("scaler_growth_factor", growth_factor, "16-mixed: factor by which the loss scale grows");
  field("scaler_backoff_factor", backoff_factor,
        "16-mixed: factor by which the loss scale shrinks after an overflow");
  field("scaler_growth_interval", growth_interval,
        "16-mixed: steps without overflow after which the loss scale grows");
  field("scaler_static_scale", static_scale,
        "16-mixed: loss scale that stays the same; 0: it follows overflows");
  field("scaler_hysteresis", hysteresis,
        "16-mixed: number of the overflow at which the loss scale begins to shrink");
  field("scaler_consecutive_hysteresis", consecutive_hysteresis,
        "16-mixed: a step without overflow begins the count of --scaler-hysteresis again; false: "
        "growth of the loss scale does");
  field("scaler_min_scale", min_scale,
        "16-mixed: smallest loss scale; an overflow at it ends the run; 0: none");
}

GradScaler::GradScaler(const GradScalerOptions& options, std::function<bool(bool)> agree)
    : options_(options),
      agree_(std::move(agree)),
      scale_(static_cast<float>(options.static_scale > 0.0 ? options.static_scale
                                                           : options.init_scale)),
      hysteresis_left_(options.hysteresis) {
  LEVIN_CHECK(
      options.init_scale > 0.0 && options.growth_factor > 1.0 && options.backoff_factor > 0.0 &&
          options.backoff_factor < 1.0 && options.growth_interval > 0,
      "optim.scaler.options",
      "got init_scale = {}, growth_factor = {}, backoff_factor = {}, growth_interval = {}, "
      "wanted above 0, above 1, between 0 and 1, above 0",
      options.init_scale, options.growth_factor, options.backoff_factor, options.growth_interval);
  LEVIN_CHECK(options.static_scale >= 0.0 && std::isfinite(options.static_scale) &&
                  options.hysteresis >= 1 && options.min_scale >= 0.0 &&
                  options.min_scale <= options.init_scale,
              "optim.scaler.options",
              "got static_scale = {}, hysteresis = {}, min_scale = {}, wanted at least 0, at least "
              "1, and 0 to init_scale ({})",
              options.static_scale, options.hysteresis, options.min_scale, options.init_scale);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  // A tensor, not a number: a float16 loss would overflow in its own type.
  return loss * at::full({}, scale_, at::TensorOptions(at::kFloat).device(loss.device()));
}

bool GradScaler::is_unscaled(const Optimizer& optimizer) const {
  return stages_.contains(&optimizer);
}

void GradScaler::unscale(const Optimizer& optimizer) {
  LEVIN_CHECK(!is_unscaled(optimizer), "optim.scaler.twice",
              "the gradients of {} were already {} since the last update; unscale and step once "
              "per step, and call backward before the next",
              optimizer.name(), has_stepped(optimizer) ? "used in a step" : "unscaled");
  const at::NoGradGuard no_grad;
  const auto inverse = static_cast<float>(1.0 / static_cast<double>(scale_));
  bool overflowed = false;
  for (auto& [kind, gradients] : gradients_by_kind(optimizer)) {
    const auto on_device = at::TensorOptions(at::kFloat).device(gradients.front().device());
    at::Tensor found = at::zeros({1}, on_device);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found,
                                                   at::full({1}, inverse, on_device));
    overflowed = overflowed || found.item<float>() != 0.0F;
  }
  stages_[&optimizer].overflowed = agree_ ? agree_(overflowed) : overflowed;
}

GradScaler::Stage& GradScaler::unscaled(const Optimizer& optimizer) {
  if (!is_unscaled(optimizer) || has_stepped(optimizer)) unscale(optimizer);
  return stages_.at(&optimizer);
}

void GradScaler::forget_unstepped() {
  std::erase_if(stages_, [](const auto& stage) { return !stage.second.stepped; });
}

bool GradScaler::step(Optimizer& optimizer) {
  return step(optimizer, [&] { optimizer.step(); });
}

bool GradScaler::step(const Optimizer& optimizer, const std::function<void()>& take) {
  Stage& stage = unscaled(optimizer);
  if (!stage.overflowed) take();
  stage.stepped = true;
  return !stage.overflowed;
}

bool GradScaler::has_stepped() const {
  return std::ranges::any_of(stages_, [](const auto& stage) { return stage.second.stepped; });
}

bool GradScaler::has_stepped(const Optimizer& optimizer) const {
  const auto stage = stages_.find(&optimizer);
  return stage != stages_.end() && stage->second.stepped;
}

void GradScaler::update() {
  LEVIN_CHECK(!stages_.empty(), "optim.scaler.update",
              "no optimizer was stepped since the last update; call step before update");
  const bool overflowed =
      std::ranges::any_of(stages_, [](const auto& stage) { return stage.second.overflowed; });
  stages_.clear();
  if (options_.static_scale > 0.0) return;
  if (overflowed) {
    growth_tracker_ = 0;
    shrink();
    return;
  }
  if (options_.consecutive_hysteresis) hysteresis_left_ = options_.hysteresis;
  if (++growth_tracker_ < options_.growth_interval) return;
  const auto grown = static_cast<float>(static_cast<double>(scale_) * options_.growth_factor);
  if (std::isfinite(grown)) scale_ = grown;
  growth_tracker_ = 0;
  hysteresis_left_ = options_.hysteresis;
}

void GradScaler::shrink() {
  if (hysteresis_left_ > 1) {
    --hysteresis_left_;
    return;
  }
  const auto least = static_cast<float>(options_.min_scale);
  LEVIN_CHECK(least == 0.0F || scale_ > least, "optim.scaler.min_scale",
              "the gradients overflowed at the smallest loss scale, {}; lower the learning rate or "
              "clip the gradients, or lower --scaler-min-scale",
              scale_);
  const auto shrunk = static_cast<float>(static_cast<double>(scale_) * options_.backoff_factor);
  scale_ = std::max(shrunk, least);
}

State GradScaler::state_dict() const {
  State state;
  state.set("scale", static_cast<double>(scale_))
      .set("growth_factor", options_.growth_factor)
      .set("backoff_factor", options_.backoff_factor)
      .set("growth_interval", options_.growth_interval)
      .set("_growth_tracker", growth_tracker_);
  if (options_.hysteresis > 1) state.set("_hysteresis_left", hysteresis_left_);
  return state;
}

void GradScaler::load_state_dict(const State& state) {
  if (options_.static_scale == 0.0) scale_ = static_cast<float>(state.number("scale"));
  options_.growth_factor = state.number("growth_factor");
  options_.backoff_factor = state.number("backoff_factor");
  options_.growth_interval = state.integer("growth_interval");
  growth_tracker_ = state.integer("_growth_tracker");
  hysteresis_left_ =
      state.contains("_hysteresis_left")
          ? std::clamp<int64_t>(state.integer("_hysteresis_left"), 1, options_.hysteresis)
          : options_.hysteresis;
  stages_.clear();
}

}  // namespace levin::optim
