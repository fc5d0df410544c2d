#include <algorithm>
#include <cmath>
#include <numbers>

#include "levin/base/check.h"
#include "levin/optim/optim.h"

namespace levin::optim {
namespace {

/// Rises over the warm-up; nothing once it is over.
std::optional<double> warmup(int64_t step, int64_t warmup_steps) {
  if (step >= warmup_steps) return std::nullopt;
  return static_cast<double>(step) / static_cast<double>(warmup_steps);
}

void check_warmup(std::string_view schedule, int64_t warmup_steps) {
  LEVIN_CHECK(warmup_steps >= 0, "optim.schedule.options",
              "got warmup_steps = {} for {}, wanted at least 0", warmup_steps, schedule);
}

/// least: what the factor falls to.
template <class Options>
void check_fall(std::string_view schedule, const Options& options, double least) {
  check_warmup(schedule, options.warmup_steps);
  const bool has_end = options.total_steps != -1;
  LEVIN_CHECK(!has_end || options.total_steps >= options.warmup_steps, "optim.schedule.options",
              "got total_steps = {} and warmup_steps = {} for {}, wanted total_steps of at least "
              "warmup_steps, or -1 for the run's total",
              options.total_steps, options.warmup_steps, schedule);
  LEVIN_CHECK(least >= 0.0, "optim.schedule.options",
              "{} got a final factor of {}, wanted at least 0", schedule, least);
}

/// Returns which part of the way from the warm-up's end to the run's end is done, 0 to 1.
double progress(std::string_view schedule, int64_t step, int64_t warmup_steps, int64_t wanted_total,
                int64_t run_total) {
  const int64_t total = wanted_total >= 0 ? wanted_total : run_total;
  LEVIN_CHECK(total >= 0, "optim.schedule.total_steps",
              "the {} schedule needs a total number of steps, but the run has no limit; give "
              "total_steps to the schedule, or max_epochs or max_steps to the Trainer",
              schedule);
  const double length = static_cast<double>(std::max<int64_t>(1, total - warmup_steps));
  return std::min(1.0, static_cast<double>(step - warmup_steps) / length);
}

}  // namespace

Schedule constant(ConstantOptions options) {
  check_warmup("constant", options.warmup_steps);
  return {"constant", [options](int64_t step, int64_t) {
            return warmup(step, options.warmup_steps).value_or(1.0);
          }};
}

Schedule linear(LinearOptions options) {
  check_fall("linear", options, options.end_factor);
  return {"linear", [options](int64_t step, int64_t run_total) {
            const double gone = progress("linear", std::max(step, options.warmup_steps),
                                         options.warmup_steps, options.total_steps, run_total);
            if (const auto rising = warmup(step, options.warmup_steps)) return *rising;
            return 1.0 + (options.end_factor - 1.0) * gone;
          }};
}

Schedule cosine(CosineOptions options) {
  check_fall("cosine", options, options.min_factor);
  return {"cosine", [options](int64_t step, int64_t run_total) {
            const double gone = progress("cosine", std::max(step, options.warmup_steps),
                                         options.warmup_steps, options.total_steps, run_total);
            if (const auto rising = warmup(step, options.warmup_steps)) return *rising;
            const double wave =
                0.5 * (1.0 + std::cos(2.0 * std::numbers::pi * options.num_cycles * gone));
            return options.min_factor + (1.0 - options.min_factor) * std::max(0.0, wave);
          }};
}

Schedule step(StepOptions options) {
  check_warmup("step", options.warmup_steps);
  LEVIN_CHECK(options.step_size >= 1, "optim.schedule.options",
              "got step_size = {}, wanted at least 1", options.step_size);
  LEVIN_CHECK(options.gamma >= 0.0, "optim.schedule.options", "got gamma = {}, wanted at least 0",
              options.gamma);
  return {"step", [options](int64_t step, int64_t) {
            if (const auto rising = warmup(step, options.warmup_steps)) return *rising;
            const int64_t decays = step / options.step_size;
            return std::pow(options.gamma, static_cast<double>(decays));
          }};
}

Schedule lambda(std::function<double(int64_t step)> factor) {
  LEVIN_CHECK(factor != nullptr, "optim.schedule.options",
              "got no function for lambda, wanted a function of the step");
  return {"lambda", [factor = std::move(factor)](int64_t step, int64_t) { return factor(step); }};
}

}  // namespace levin::optim
