#include <fmt/ranges.h>

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

void check_at_least(std::string_view schedule, std::string_view name, double value, double least) {
  LEVIN_CHECK(value >= least, "optim.schedule.options", "got {} = {} for {}, wanted at least {}",
              name, value, schedule, least);
}

void check_part(std::string_view schedule, std::string_view name, double value) {
  LEVIN_CHECK(value >= 0.0 && value <= 1.0, "optim.schedule.options",
              "got {} = {} for {}, wanted 0 to 1", name, value, schedule);
}

void check_shape(std::string_view schedule, std::string_view name, const std::string& value,
                 const std::vector<std::string>& known) {
  LEVIN_CHECK(std::ranges::count(known, value) > 0, "optim.schedule.options",
              "got {} = '{}' for {}, wanted one of {}", name, value, schedule,
              fmt::join(known, ", "));
}

int64_t total_of(std::string_view schedule, int64_t wanted_total, int64_t run_total) {
  const int64_t total = wanted_total >= 0 ? wanted_total : run_total;
  LEVIN_CHECK(total >= 0, "optim.schedule.total_steps",
              "the {} schedule needs a total number of steps, but the run has no limit; give "
              "total_steps to the schedule, or max_epochs or max_steps to the Trainer",
              schedule);
  return total;
}

/// Returns which part of the way from the warm-up's end to the run's end is done, 0 to 1.
double progress(std::string_view schedule, int64_t step, int64_t warmup_steps, int64_t wanted_total,
                int64_t run_total) {
  const int64_t total = total_of(schedule, wanted_total, run_total);
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

Schedule multi_step(MultiStepOptions options) {
  check_warmup("multi_step", options.warmup_steps);
  check_at_least("multi_step", "gamma", options.gamma, 0.0);
  LEVIN_CHECK(std::ranges::is_sorted(options.milestones) &&
                  (options.milestones.empty() || options.milestones.front() >= 0),
              "optim.schedule.options",
              "got milestones [{}] for multi_step, wanted numbers of at least 0 that ascend",
              fmt::join(options.milestones, ", "));
  return {"multi_step", [options](int64_t step, int64_t) {
            if (const auto rising = warmup(step, options.warmup_steps)) return *rising;
            const auto next = std::ranges::upper_bound(options.milestones, step);
            return std::pow(options.gamma, static_cast<double>(next - options.milestones.begin()));
          }};
}

Schedule exponential(ExponentialOptions options) {
  check_warmup("exponential", options.warmup_steps);
  check_at_least("exponential", "gamma", options.gamma, 0.0);
  return {"exponential", [options](int64_t step, int64_t) {
            if (const auto rising = warmup(step, options.warmup_steps)) return *rising;
            return std::pow(options.gamma, static_cast<double>(step));
          }};
}

Schedule polynomial(PolynomialOptions options) {
  check_fall("polynomial", options, options.end_factor);
  check_at_least("polynomial", "power", options.power, 0.0);
  check_part("polynomial", "end_factor", options.end_factor);
  return {"polynomial", [options](int64_t step, int64_t run_total) {
            const double gone = progress("polynomial", std::max(step, options.warmup_steps),
                                         options.warmup_steps, options.total_steps, run_total);
            if (const auto rising = warmup(step, options.warmup_steps)) return *rising;
            return (1.0 - options.end_factor) * std::pow(1.0 - gone, options.power) +
                   options.end_factor;
          }};
}

Schedule one_cycle(OneCycleOptions options) {
  LEVIN_CHECK(options.total_steps == -1 || options.total_steps >= 1, "optim.schedule.options",
              "got total_steps = {} for one_cycle, wanted at least 1, or -1 for the run's total",
              options.total_steps);
  check_part("one_cycle", "pct_start", options.pct_start);
  check_shape("one_cycle", "anneal_strategy", options.anneal_strategy, {"cos", "linear"});
  LEVIN_CHECK(options.div_factor > 0.0 && options.final_div_factor > 0.0, "optim.schedule.options",
              "got div_factor = {} and final_div_factor = {} for one_cycle, wanted numbers above 0",
              options.div_factor, options.final_div_factor);
  return {"one_cycle", [options](int64_t step, int64_t run_total) {
            const int64_t total = total_of("one_cycle", options.total_steps, run_total);
            const double first = 1.0 / options.div_factor, last = first / options.final_div_factor;
            const auto length = static_cast<double>(total);
            struct Phase {
              double end, from, to;
            };
            std::vector<Phase> phases = {{options.pct_start * length - 1.0, first, 1.0}};
            if (options.three_phase) {
              phases.push_back({2.0 * options.pct_start * length - 2.0, 1.0, first});
            }
            phases.push_back({length - 1.0, options.three_phase ? first : 1.0, last});
            double start = 0.0;
            const auto now = static_cast<double>(step);
            for (const auto& [end, from, to] : phases) {
              if (now > end) {
                start = end;
                continue;
              }
              const double gone = end > start ? (now - start) / (end - start) : 1.0;
              if (options.anneal_strategy == "linear") return from + (to - from) * gone;
              return to + (from - to) / 2.0 * (std::cos(std::numbers::pi * gone) + 1.0);
            }
            return last;
          }};
}

Schedule cosine_with_restarts(CosineWithRestartsOptions options) {
  check_fall("cosine_with_restarts", options, 0.0);
  check_at_least("cosine_with_restarts", "num_cycles", static_cast<double>(options.num_cycles),
                 1.0);
  return {"cosine_with_restarts", [options](int64_t step, int64_t run_total) {
            const double gone =
                progress("cosine_with_restarts", std::max(step, options.warmup_steps),
                         options.warmup_steps, options.total_steps, run_total);
            if (const auto rising = warmup(step, options.warmup_steps)) return *rising;
            if (gone >= 1.0) return 0.0;
            const double place = std::fmod(static_cast<double>(options.num_cycles) * gone, 1.0);
            return 0.5 * (1.0 + std::cos(std::numbers::pi * place));
          }};
}

Schedule cosine_warm_restarts(CosineWarmRestartsOptions options) {
  for (const auto& [name, value] :
       {std::pair("t_0", options.t_0), std::pair("t_mult", options.t_mult)}) {
    check_at_least("cosine_warm_restarts", name, static_cast<double>(value), 1.0);
  }
  check_at_least("cosine_warm_restarts", "min_factor", options.min_factor, 0.0);
  return {"cosine_warm_restarts", [options](int64_t step, int64_t) {
            int64_t length = options.t_0;
            if (options.t_mult == 1) step %= length;
            while (step >= length) {
              step -= length;
              length *= options.t_mult;
            }
            const double gone = static_cast<double>(step) / static_cast<double>(length);
            return options.min_factor +
                   (1.0 - options.min_factor) * (1.0 + std::cos(std::numbers::pi * gone)) / 2.0;
          }};
}

Schedule warmup_stable_decay(WarmupStableDecayOptions options) {
  check_fall("warmup_stable_decay", options, options.min_factor);
  check_at_least("warmup_stable_decay", "decay_steps", static_cast<double>(options.decay_steps),
                 0.0);
  check_at_least("warmup_stable_decay", "stable_steps", static_cast<double>(options.stable_steps),
                 -1.0);
  LEVIN_CHECK(options.total_steps == -1 || options.stable_steps >= 0 ||
                  options.warmup_steps + options.decay_steps <= options.total_steps,
              "optim.schedule.options",
              "got warmup_steps = {} and decay_steps = {} for warmup_stable_decay, wanted at most "
              "total_steps = {} together",
              options.warmup_steps, options.decay_steps, options.total_steps);
  check_shape("warmup_stable_decay", "warmup_type", options.warmup_type,
              {"linear", "cosine", "1-sqrt"});
  check_shape("warmup_stable_decay", "decay_type", options.decay_type,
              {"linear", "cosine", "1-sqrt"});
  return {
      "warmup_stable_decay", [options](int64_t step, int64_t run_total) {
        const double least = options.min_factor;
        const auto raised = [least](double factor) {
          return std::max(0.0, factor * (1.0 - least) + least);
        };
        if (const auto gone = warmup(step, options.warmup_steps)) {
          if (options.warmup_type == "cosine") {
            return raised(0.5 * (1.0 - std::cos(std::numbers::pi * *gone)));
          }
          return raised(options.warmup_type == "linear" ? *gone : 1.0 - std::sqrt(1.0 - *gone));
        }
        const int64_t fall = options.decay_steps;
        const int64_t begin =
            options.stable_steps >= 0
                ? options.warmup_steps + options.stable_steps
                : total_of("warmup_stable_decay", options.total_steps, run_total) - fall;
        if (step < begin) return 1.0;
        if (step >= begin + fall) return least;
        const double gone = static_cast<double>(step - begin) / static_cast<double>(fall);
        if (options.decay_type == "cosine") {
          return raised(0.5 * (1.0 + std::cos(2.0 * std::numbers::pi * options.num_cycles * gone)));
        }
        return raised(options.decay_type == "linear" ? 1.0 - gone : 1.0 - std::sqrt(gone));
      }};
}

Schedule inverse_sqrt(InverseSqrtOptions options) {
  check_warmup("inverse_sqrt", options.warmup_steps);
  LEVIN_CHECK(
      options.timescale == -1 || options.timescale >= 1, "optim.schedule.options",
      "got timescale = {} for inverse_sqrt, wanted at least 1, or -1 for the warm-up's steps",
      options.timescale);
  if (options.timescale == -1) {
    options.timescale = options.warmup_steps > 0 ? options.warmup_steps : 10'000;
  }
  return {"inverse_sqrt", [options](int64_t step, int64_t) {
            if (const auto rising = warmup(step, options.warmup_steps)) return *rising;
            const int64_t place = step + options.timescale - options.warmup_steps;
            return 1.0 /
                   std::sqrt(static_cast<double>(place) / static_cast<double>(options.timescale));
          }};
}

Schedule lambda(std::function<double(int64_t step)> factor) {
  LEVIN_CHECK(factor != nullptr, "optim.schedule.options",
              "got no function for lambda, wanted a function of the step");
  return {"lambda", [factor = std::move(factor)](int64_t step, int64_t) { return factor(step); }};
}

}  // namespace levin::optim
