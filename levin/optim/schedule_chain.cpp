// Schedules of schedules, and the one that follows a monitored value.

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "levin/base/check.h"
#include "levin/optim/optim.h"

namespace levin::optim {
namespace {

void check_parts(std::string_view name, const std::vector<Schedule>& parts) {
  LEVIN_CHECK(!parts.empty(), "optim.schedule.options",
              "got no schedule for {}, wanted at least one", name);
  for (const Schedule& part : parts) {
    LEVIN_CHECK(!part.plateau, "optim.schedule.options",
                "got {} as a part of {}, but it follows a value and not the step; use it alone",
                part.name, name);
    LEVIN_CHECK(part.interval == Schedule::Interval::kStep && part.frequency == 1,
                "optim.schedule.options",
                "got {} with by_epoch() or by_step() as a part of {}; call it on the result of {}",
                part.name, name, name);
  }
}

}  // namespace

Schedule sequential(std::vector<Schedule> schedules, std::vector<int64_t> milestones) {
  check_parts("sequential", schedules);
  LEVIN_CHECK(schedules.size() == milestones.size() + 1, "optim.schedule.options",
              "got {} schedules and {} milestones for sequential, wanted one schedule more",
              schedules.size(), milestones.size());
  const bool ascend =
      std::ranges::adjacent_find(milestones, std::greater_equal()) == milestones.end();
  LEVIN_CHECK(ascend && (milestones.empty() || milestones.front() >= 0), "optim.schedule.options",
              "got milestones [{}] for sequential, wanted numbers of at least 0 that ascend",
              fmt::join(milestones, ", "));
  return {"sequential", [schedules = std::move(schedules), milestones = std::move(milestones)](
                            int64_t step, int64_t run_total) {
            const auto next = std::ranges::upper_bound(milestones, step);
            const int64_t begin = next == milestones.begin() ? 0 : *(next - 1);
            const int64_t end = next == milestones.end() ? run_total : *next;
            const auto part = static_cast<size_t>(next - milestones.begin());
            return schedules[part].factor(step - begin,
                                          end < 0 ? -1 : std::max(end - begin, int64_t{0}));
          }};
}

Schedule chained(std::vector<Schedule> schedules) {
  check_parts("chained", schedules);
  return {"chained", [schedules = std::move(schedules)](int64_t step, int64_t run_total) {
            double factor = 1.0;
            for (const Schedule& schedule : schedules) factor *= schedule.factor(step, run_total);
            return factor;
          }};
}

Schedule reduce_on_plateau(PlateauOptions options) {
  const auto check = [](bool is_good, std::string_view name, const auto& value,
                        std::string_view wanted) {
    LEVIN_CHECK(is_good, "optim.schedule.options", "got {} = '{}' for reduce_on_plateau, wanted {}",
                name, value, wanted);
  };
  check(!options.monitor.empty(), "monitor", options.monitor, "the name of a logged value");
  check(options.mode == "min" || options.mode == "max", "mode", options.mode, "min or max");
  check(options.factor >= 0.0 && options.factor < 1.0, "factor", options.factor,
        "at least 0 and below 1");
  check(options.patience >= 0, "patience", options.patience, "at least 0");
  check(options.threshold >= 0.0, "threshold", options.threshold, "at least 0");
  check(options.threshold_mode == "rel" || options.threshold_mode == "abs", "threshold_mode",
        options.threshold_mode, "rel or abs");
  check(options.cooldown >= 0, "cooldown", options.cooldown, "at least 0");
  check(options.min_lr >= 0.0, "min_lr", options.min_lr, "at least 0");
  check(options.eps >= 0.0, "eps", options.eps, "at least 0");
  Schedule schedule{"reduce_on_plateau", [](int64_t, int64_t) { return 1.0; }};
  schedule.interval = Schedule::Interval::kEpoch;
  schedule.plateau = std::move(options);
  return schedule;
}

}  // namespace levin::optim
