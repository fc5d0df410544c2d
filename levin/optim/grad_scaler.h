#pragma once
// GradScaler: dynamic loss scaling for float16 mixed precision. It scales the loss so that small
// gradients do not become zero, and skips steps whose gradients overflowed.
//
//   scaler.scale(loss).backward();
//   scaler.unscale(optimizer);            // only to clip them
//   scaler.step(optimizer);
//   scaler.update();

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/base/state.h"
#include "levin/optim/optimizer.h"

namespace levin::optim {

/// Options of GradScaler, with the names and defaults of torch.amp.GradScaler, and those of
/// DeepSpeed's section fp16: loss_scale, hysteresis, consecutive_hysteresis, min_loss_scale.
struct GradScalerOptions {
  double init_scale = 65536.0;  ///< scale of the loss at the start, above 0
  /// Factor of the scale after growth_interval steps without overflow, above 1.
  double growth_factor = 2.0;
  double backoff_factor = 0.5;     ///< factor of the scale after an overflow, between 0 and 1
  int64_t growth_interval = 2000;  ///< steps without overflow until the scale grows, at least 1
  double static_scale = 0.0;       ///< a scale that stays the same; 0: the scale follows overflows
  /// Number of the overflow at which the scale begins to shrink, at least 1. The overflows before
  /// it are only skipped. Growth of the scale begins the count again.
  int64_t hysteresis = 1;
  bool consecutive_hysteresis = false;  ///< each step without overflow begins that count again
  /// Smallest scale; an overflow at it is Error "optim.scaler.min_scale". 0: none.
  double min_scale = 0.0;

  /// Visits the options as scaler_init_scale and so on (--scaler-init-scale).
  LEVIN_API void fields(FieldVisitor& field);
};

/// Scales losses and unscales gradients. It follows torch.amp.GradScaler, number for number.
class LEVIN_API GradScaler {
 public:
  /// agree: returns whether its argument is true on any rank. It is empty if there is one rank, or
  /// if the gradients are the same on all ranks. Throws Error "optim.scaler.options" for options
  /// outside their range.
  explicit GradScaler(const GradScalerOptions& options = {},
                      std::function<bool(bool)> agree = nullptr);

  /// Returns the loss times the scale, in float32 if the loss had a 16-bit dtype.
  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the optimizer's gradients by the scale, so that they can be clipped. Throws Error
  /// "optim.scaler.twice" if they were already unscaled or used in a step since the last update(),
  /// and "optim.scaler.half" for gradients in float16 (parameters must be float32).
  void unscale(const Optimizer& optimizer);
  /// Returns whether the optimizer's gradients were unscaled since the last update().
  bool is_unscaled(const Optimizer& optimizer) const;
  /// Unscales the gradients unless that was done, and takes the optimizer's step unless a gradient
  /// is infinite or NaN. Returns whether it took the step. Throws what unscale() throws.
  bool step(Optimizer& optimizer);
  /// Does the same, but calls take instead of optimizer.step().
  bool step(const Optimizer& optimizer, const std::function<void()>& take);
  /// Adjusts the scale, after the steps of all optimizers. Throws Error "optim.scaler.update" if no
  /// optimizer was unscaled or stepped since the last update(), and "optim.scaler.min_scale" for an
  /// overflow at the smallest scale.
  void update();
  /// Returns whether step() was called for any optimizer since the last update(), also if the step
  /// was skipped.
  bool has_stepped() const;
  /// Returns whether step() was called for this optimizer since the last update().
  bool has_stepped(const Optimizer& optimizer) const;

  /// Returns the current scale.
  double get_scale() const { return scale_; }
  /// Returns the scale, the options and the count of steps without overflow, under PyTorch's keys:
  /// scale, growth_factor, backoff_factor, growth_interval, _growth_tracker. With hysteresis it has
  /// _hysteresis_left too.
  State state_dict() const;
  /// Loads a state of these keys. Throws Error "base.state.missing" or "base.state.type" for a key
  /// that is missing or of another type. static_scale stays that of the options.
  void load_state_dict(const State& state);
  /// Returns whether two scalers have the same scale, the same count of steps without overflow and
  /// the same optimizers unscaled since the last update().
  bool operator==(const GradScaler& other) const {
    return scale_ == other.scale_ && growth_tracker_ == other.growth_tracker_ &&
           hysteresis_left_ == other.hysteresis_left_ && stages_ == other.stages_;
  }

  /// Forgets which optimizers were unscaled and did not step, since their gradients are not used.
  void forget_unstepped();

 private:
  struct Stage {
    bool overflowed = false;
    bool stepped = false;
    bool operator==(const Stage&) const = default;
  };

  Stage& unscaled(const Optimizer& optimizer);
  void shrink();  ///< After an overflow.

  GradScalerOptions options_;
  std::function<bool(bool)> agree_;
  float scale_;
  int64_t growth_tracker_ = 0;
  int64_t hysteresis_left_;
  std::map<const Optimizer*, Stage> stages_;  ///< optimizers unscaled since the last update
};

}  // namespace levin::optim
