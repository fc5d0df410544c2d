#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/run/limits.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

constexpr std::array<std::string_view, 4> kStages = {"train", "validate", "test", "predict"};
constexpr const char* kElapsed = "time_elapsed";

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class StageTimer final : public Timer {
 public:
  explicit StageTimer(TimerOptions options) : options_(std::move(options)) {
    LEVIN_CHECK(options_.interval == "step" || options_.interval == "epoch", "trainer.timer",
                "got interval = '{}', wanted step or epoch", options_.interval);
    duration_ = detail::parse_duration(options_.duration, "duration");
  }

  double time_elapsed(std::string_view stage) const override {
    const Times& times = times_of(stage);
    const double before = stage == "train" ? before_ : 0.0;
    if (!times.start) return before;
    return before + times.end.value_or(now()) - *times.start;
  }
  std::optional<double> time_remaining(std::string_view stage) const override {
    const double elapsed = time_elapsed(stage);
    return duration_ ? std::optional(*duration_ - elapsed) : std::nullopt;
  }
  std::optional<double> start_time(std::string_view stage) const override {
    return times_of(stage).start;
  }
  std::optional<double> end_time(std::string_view stage) const override {
    return times_of(stage).end;
  }

  std::string state_key() const override { return "timer"; }
  State state_dict() const override {
    State elapsed, state;
    for (const std::string_view stage : kStages) elapsed.set(stage, time_elapsed(stage));
    return std::move(state.set(kElapsed, std::move(elapsed)));
  }
  void load_state_dict(const State& state) override {
    before_ = state.child(kElapsed).number("train");
  }

  void setup(Trainer&, Module&, std::string_view stage) override {
    if (stage != "fit") return;
    before_ = 0.0;
    times_of("train") = {};
  }
  // A resumed run may have no time left.
  void on_fit_start(Trainer& trainer, Module&) override { look(trainer); }
  void on_train_start(Trainer&, Module&) override { times_of("train") = {.start = now()}; }
  void on_train_end(Trainer&, Module&) override { times_of("train").end = now(); }
  void on_exception(Trainer&, Module&, const std::exception&) override {
    for (Times& times : times_) {
      if (times.start && !times.end) times.end = now();
    }
  }
  void on_evaluation_start(Trainer&, Module&, std::string_view stage) override {
    times_of(stage) = {.start = now()};
  }
  void on_evaluation_end(Trainer&, Module&, std::string_view stage) override {
    times_of(stage).end = now();
  }
  void on_train_batch_end(Trainer& trainer, Module&, const at::Tensor&, const Batch&,
                          int64_t) override {
    if (options_.interval == "step" && trainer.at_step_boundary()) look(trainer);
  }
  void on_train_epoch_end(Trainer& trainer, Module&) override {
    if (options_.interval == "epoch") look(trainer);
  }

 private:
  struct Times {
    std::optional<double> start = {}, end = {};
  };

  const Times& times_of(std::string_view stage) const {
    const auto found = std::ranges::find(kStages, stage);
    LEVIN_CHECK(found != kStages.end(), "trainer.timer",
                "got stage '{}', wanted train, validate, test or predict", stage);
    return times_[static_cast<size_t>(found - kStages.begin())];
  }
  Times& times_of(std::string_view stage) {
    return const_cast<Times&>(std::as_const(*this).times_of(stage));
  }

  // The ranks ask each other about a stop anyway (Trainer::request_stop), so rank 0 asks alone.
  void look(Trainer& trainer) {
    if (!duration_ || !trainer.accelerator().is_main_process() || trainer.stop_requested()) return;
    const double elapsed = time_elapsed("train");
    if (elapsed < *duration_) return;
    trainer.request_stop("the timer's duration is over");
    if (options_.verbose) {
      log::info("timer: the run stops because its duration of {} s is over, after {:.0f} s",
                *duration_, elapsed);
    }
  }

  TimerOptions options_;
  std::optional<double> duration_;
  double before_ = 0.0;  ///< seconds of training before this run resumed
  std::array<Times, kStages.size()> times_;
};

}  // namespace

std::shared_ptr<Timer> timer(TimerOptions options) {
  return std::make_shared<StageTimer>(std::move(options));
}

}  // namespace levin
