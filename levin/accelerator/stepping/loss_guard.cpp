#include "levin/accelerator/stepping/loss_guard.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "levin/base/check.h"
#include "levin/base/log.h"

namespace levin {
namespace {

void check_policy(std::string_view flag, const std::string& policy) {
  constexpr std::array<std::string_view, 5> kPolicies = {"off", "warn", "skip", "rollback", "stop"};
  LEVIN_CHECK(std::ranges::count(kPolicies, policy) == 1, "accelerator.loss.policy",
              "got '{}', wanted off, warn, skip, rollback or stop; set {}", policy, flag);
}

// Logs on whichever rank saw it.
void warn(std::string_view text) {
  if (log::enabled(log::Level::kError)) log::write(log::Level::kWarn, text);
}

}  // namespace

void LossGuardOptions::fields(FieldVisitor& field) {
  field("nan_policy", nan_policy,
        "what to do when a loss is NaN or infinite: off, warn, skip (the step), rollback (to the "
        "newest checkpoint, and on with the batches after the bad one) or stop");
  field("spike_policy", spike_policy,
        "what to do when a loss is far above the running mean: off, warn, skip, rollback or stop");
  field("spike_factor", spike_factor,
        "a loss above this multiple of the running mean of losses is a spike");
  field("spike_window", spike_window, "number of batches in the running mean of losses");
  field("max_rollbacks", max_rollbacks, "rollbacks in a run before it ends with an error");
}

LossGuard::LossGuard(const LossGuardOptions& options) : options_(options) {
  check_policy("--nan-policy", options.nan_policy);
  check_policy("--spike-policy", options.spike_policy);
  LEVIN_CHECK(options.spike_factor > 1.0 && options.spike_window > 0, "accelerator.loss.policy",
              "got spike_factor = {} and spike_window = {}, wanted above 1 and above 0",
              options.spike_factor, options.spike_window);
  LEVIN_CHECK(options.max_rollbacks >= 0, "accelerator.loss.policy",
              "got max_rollbacks = {}, wanted at least 0", options.max_rollbacks);
}

bool LossGuard::is_on() const {
  return options_.nan_policy != "off" || options_.spike_policy != "off";
}

bool LossGuard::has_policy(std::string_view policy) const {
  return options_.nan_policy == policy || options_.spike_policy == policy;
}

LossGuard::Verdict LossGuard::look(const at::Tensor& loss,
                                   const std::function<std::string()>& where) {
  const auto value = loss.item<double>();
  const bool is_number = std::isfinite(value);
  const bool spikes = is_number && count_ >= options_.spike_window &&
                      std::abs(value) > options_.spike_factor * std::abs(mean_);
  const std::string& policy = is_number ? options_.spike_policy : options_.nan_policy;
  if ((!is_number || spikes) && policy != "off") {
    const std::string what = fmt::format("the loss of {} is {:.4g}, and the mean before was {:.4g}",
                                         where(), value, mean_);
    LEVIN_CHECK(policy != "stop", "accelerator.loss.stop",
                "{}; lower the learning rate, clip the gradients, or set {} skip", what,
                is_number ? "--spike-policy" : "--nan-policy");
    warn(what + (policy == "warn" ? "" : "; its step is skipped"));
    return policy == "warn"   ? Verdict::kTake
           : policy == "skip" ? Verdict::kSkip
                              : Verdict::kRollBack;
  }
  if (!is_number) return Verdict::kTake;
  count_ = std::min(count_ + 1, options_.spike_window);
  mean_ += (value - mean_) / static_cast<double>(count_);
  return Verdict::kTake;
}

State LossGuard::state_dict() const {
  State state;
  state.set("mean", mean_).set("count", count_);
  return state;
}

void LossGuard::load_state_dict(const State& state) {
  mean_ = state.number("mean");
  count_ = std::clamp<int64_t>(state.integer("count"), 0, options_.spike_window);
}

}  // namespace levin
