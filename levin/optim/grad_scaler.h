#pragma once
// GradScaler: keeps small float16 gradients from becoming zero by scaling the loss, and leaves out
// the steps whose gradients overflowed. Stands around backward and the optimizer's step.
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

struct GradScalerOptions {
  double init_scale = 65536.0;
  double growth_factor = 2.0;      ///< after growth_interval steps without overflow
  double backoff_factor = 0.5;     ///< after a step with one
  int64_t growth_interval = 2000;  ///< steps

  LEVIN_API void fields(FieldVisitor& field);
};

/// Follows torch.amp.GradScaler, number for number.
class LEVIN_API GradScaler {
 public:
  /// agree: whether it is true on any rank; none where a rank is alone or the gradients that it
  /// looks at are the same on all. Throws Error "optim.scaler.options".
  explicit GradScaler(const GradScalerOptions& options = {},
                      std::function<bool(bool)> agree = nullptr);

  /// The loss times the scale, in float32 where it was a half type.
  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the optimizer's gradients by the scale. Throws Error "optim.scaler.twice" when they
  /// are already, or were stepped with, since the last update(), and "optim.scaler.half" for
  /// gradients in float16: parameters are to be float32.
  void unscale(const Optimizer& optimizer);
  bool is_unscaled(const Optimizer& optimizer) const;
  /// Unscales unless that was done, and takes the step unless a gradient is infinite or NaN;
  /// returns whether it did. take: in place of optimizer.step(). Throws as unscale().
  bool step(Optimizer& optimizer);
  bool step(const Optimizer& optimizer, const std::function<void()>& take);
  /// A new scale, after the steps of all optimizers. Throws Error "optim.scaler.update" when there
  /// was none.
  void update();
  /// Whether some optimizer came to step() since the last update().
  bool has_stepped() const;
  bool has_stepped(const Optimizer& optimizer) const;

  double get_scale() const { return scale_; }
  /// PyTorch's keys: scale, growth_factor, backoff_factor, growth_interval, _growth_tracker.
  State state_dict() const;
  void load_state_dict(const State& state);
  /// Two are equal that have the same scale and the same steps behind them.
  bool operator==(const GradScaler& other) const {
    return scale_ == other.scale_ && growth_tracker_ == other.growth_tracker_ &&
           stages_ == other.stages_;
  }

 private:
  struct Stage {
    bool overflowed = false;
    bool stepped = false;
    bool operator==(const Stage&) const = default;
  };

  Stage& unscaled(const Optimizer& optimizer);

  GradScalerOptions options_;
  std::function<bool(bool)> agree_;
  float scale_;
  int64_t growth_tracker_ = 0;
  std::map<const Optimizer*, Stage> stages_;  ///< of the optimizers unscaled since the last update
};

}  // namespace levin::optim
