#include "levin/observe/profiler.h"

#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/files/atomic.h"
#include "levin/files/writing/output.h"

namespace levin {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

std::set<ActivityType> activities_of(const std::vector<std::string>& names) {
  std::set<ActivityType> activities;
  for (const std::string& name : names) {
    LEVIN_CHECK(name == "cpu" || name == "cuda", "observe.profiler.activity",
                "got the activity '{}', wanted cpu or cuda", name);
    LEVIN_CHECK(name == "cpu" || at::hasCUDA(), "observe.profiler.activity",
                "got the activity cuda, but there is no GPU; leave it out");
    activities.insert(name == "cpu" ? ActivityType::CPU : ActivityType::CUDA);
  }
  if (!activities.empty()) return activities;
  activities.insert(ActivityType::CPU);
  if (at::hasCUDA()) activities.insert(ActivityType::CUDA);
  return activities;
}

void check_schedule(const ProfilerSchedule& schedule) {
  const auto [wait, warmup, active, repeat, skip_first] = schedule;
  LEVIN_CHECK(std::min({wait, warmup, active, repeat, skip_first}) >= 0,
              "observe.profiler.schedule",
              "got wait = {}, warmup = {}, active = {}, repeat = {}, skip_first = {}; wanted 0 or "
              "more steps each",
              wait, warmup, active, repeat, skip_first);
  LEVIN_CHECK(active > 0 || wait + warmup + repeat + skip_first == 0, "observe.profiler.schedule",
              "got a schedule with active = 0, which records nothing; set active to the number of "
              "steps to record");
}

}  // namespace

/// Kineto between its start and what came of it.
class Profiler::Recording {
 public:
  explicit Recording(const ProfilerOptions& options)
      : activities_(activities_of(options.activities)),
        config_(ProfilerState::KINETO, options.record_shapes || options.with_flops,
                options.profile_memory, /*with_stack=*/false, options.with_flops) {}
  ~Recording() {
    if (running_) kineto::disableProfiler();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void begin() {
    LEVIN_CHECK(!torch::profiler::impl::profilerEnabled(), "observe.profiler.running",
                "another profiler is running; stop it first");
    result_.reset();
    ::setenv("KINETO_LOG_LEVEL", "3", /*overwrite=*/0);  // it reports every start and stop
    kineto::prepareProfiler(config_, activities_);
    kineto::enableProfiler(config_, activities_);
    running_ = true;
  }
  void mark_step(int64_t step) {
    marked_.emplace(at::RecordScope::USER_SCOPE);
    if (marked_->isActive()) marked_->before("ProfilerStep#" + std::to_string(step));
  }
  void unmark_step() { marked_.reset(); }
  void end() {
    unmark_step();
    running_ = false;
    result_ = kineto::disableProfiler();
  }
  void drop() {
    end();
    result_.reset();
  }
  bool is_running() const { return running_; }
  kineto::ProfilerResult& result() const {
    LEVIN_CHECK(result_ != nullptr, "observe.profiler.empty",
                "nothing was recorded yet; call stop(), or step() to the end of a cycle");
    return *result_;
  }

 private:
  std::set<ActivityType> activities_;
  ProfilerConfig config_;
  bool running_ = false;
  std::optional<at::RecordFunction> marked_;
  std::unique_ptr<kineto::ProfilerResult> result_;
};

Profiler::Profiler(ProfilerOptions options) : options_(std::move(options)) {
  check_schedule(options_.schedule_option);
  recording_ = std::make_unique<Recording>(options_);
  enter(phase_of(0));
}

Profiler::~Profiler() {
  try {
    stop();
  } catch (const std::exception& error) {
    log::warn("{}", error.what());
  }
}

Profiler::Phase Profiler::phase_of(int64_t step) const {
  const ProfilerSchedule& schedule = options_.schedule_option;
  if (schedule.active == 0) return Phase::kRecord;
  if (step < schedule.skip_first) return Phase::kNone;
  const int64_t cycle = schedule.wait + schedule.warmup + schedule.active;
  const int64_t done = step - schedule.skip_first;
  if (schedule.repeat > 0 && done / cycle >= schedule.repeat) return Phase::kNone;
  if (done % cycle < schedule.wait) return Phase::kNone;
  return done % cycle < schedule.wait + schedule.warmup ? Phase::kWarmup : Phase::kRecord;
}

bool Profiler::ends_cycle(int64_t step) const {
  const ProfilerSchedule& schedule = options_.schedule_option;
  if (schedule.active == 0 || phase_of(step) != Phase::kRecord) return false;
  const int64_t cycle = schedule.wait + schedule.warmup + schedule.active;
  return (step - schedule.skip_first) % cycle == cycle - 1;
}

// A warm-up is recorded and thrown away: the first events of Kineto are slow.
void Profiler::enter(Phase phase) {
  recording_->unmark_step();
  if (phase_ == Phase::kWarmup && phase != Phase::kWarmup) recording_->drop();
  if (phase != Phase::kNone && !recording_->is_running()) recording_->begin();
  phase_ = phase;
  if (phase == Phase::kRecord && options_.schedule_option.active > 0) recording_->mark_step(step_);
}

void Profiler::step() {
  if (stopped_) return;
  const bool ended = ends_cycle(step_);
  if (ended) end_recording();
  ++step_;
  enter(phase_of(step_));
}

void Profiler::end_recording() {
  recording_->end();
  phase_ = Phase::kNone;
  hand_out();
  ++recordings_;
}

void Profiler::hand_out() {
  if (options_.on_trace_ready) return options_.on_trace_ready(*this);
  if (options_.output_trace_dir.empty()) return;
  const std::string number = recordings_ == 0 ? "" : "_" + std::to_string(recordings_);
  std::filesystem::path file = std::filesystem::path(options_.output_trace_dir) /
                               fmt::format("profile_{}{}.json", options_.rank, number);
  files::create_beside(file);  // an error here also fails the write below
  export_chrome_trace(file);
}

void Profiler::stop() {
  if (std::exchange(stopped_, true)) return;
  if (phase_ == Phase::kWarmup) return recording_->drop();
  if (phase_ == Phase::kRecord) end_recording();
}

void Profiler::export_chrome_trace(const std::filesystem::path& file) const {
  kineto::ProfilerResult& result = recording_->result();
  std::error_code failed;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), failed);
  try {
    files::StagedFile staged(file);
    result.save(staged.path().string());  // logs what goes wrong and returns
    LEVIN_CHECK(
        std::filesystem::file_size(staged.path(), failed) > 0 && !failed, "observe.profiler.write",
        "the trace '{}' could not be written; check that its folder is writable", file.string());
    staged.commit();
  } catch (const Error& error) {
    if (error.id() == "observe.profiler.write") throw;
    LEVIN_FAIL("observe.profiler.write", "the trace '{}' could not be written: {}", file.string(),
               error.text());
  }
}

namespace {

struct OpenEvent {
  OperatorAverage* average;
  uint64_t end_ns;
};

/// Adds each event's time to its own operator, and subtracts it from the self time of the event around
/// it. All events are of one thread.
void add_times(std::vector<const kineto::KinetoEvent*>& events,
               std::map<std::pair<std::string, bool>, OperatorAverage>& averages) {
  std::ranges::sort(events, [](const auto* a, const auto* b) {
    return std::pair(a->startNs(), b->endNs()) < std::pair(b->startNs(), a->endNs());
  });
  std::vector<OpenEvent> open;
  for (const kineto::KinetoEvent* event : events) {
    while (!open.empty() && open.back().end_ns <= event->startNs()) open.pop_back();
    OperatorAverage& average = averages[{event->name(), true}];
    const double duration_us = static_cast<double>(event->durationNs()) / 1e3;
    ++average.calls;
    average.total_us += duration_us;
    average.self_us += duration_us;
    average.flops += static_cast<int64_t>(event->flops());
    if (!open.empty()) open.back().average->self_us -= duration_us;
    open.push_back({&average, event->endNs()});
  }
}

}  // namespace

std::vector<OperatorAverage> Profiler::key_averages() const {
  std::map<std::pair<std::string, bool>, OperatorAverage> averages;
  std::map<uint64_t, std::vector<const kineto::KinetoEvent*>> threads;
  for (const kineto::KinetoEvent& event : recording_->result().events()) {
    if (event.name() == "[memory]") continue;
    if (event.deviceType() == c10::DeviceType::CPU) {
      threads[event.startThreadId()].push_back(&event);
      continue;
    }
    OperatorAverage& average = averages[{event.name(), false}];
    ++average.calls;
    average.total_us += static_cast<double>(event.durationNs()) / 1e3;
    average.self_us = average.total_us;
  }
  for (auto& [thread, events] : threads) add_times(events, averages);
  std::vector<OperatorAverage> sorted;
  for (auto& [key, average] : averages) {
    average.name = key.first;
    average.on_cpu = key.second;
    sorted.push_back(std::move(average));
  }
  std::ranges::stable_sort(sorted, std::greater(), &OperatorAverage::self_us);
  return sorted;
}

std::string Profiler::table(int64_t row_limit) const {
  const std::vector<OperatorAverage> averages = key_averages();
  double all_us = 0.0;
  size_t width = 8;
  const size_t rows =
      std::min(averages.size(), static_cast<size_t>(std::max<int64_t>(row_limit, 0)));
  for (const OperatorAverage& average : averages) all_us += average.self_us;
  for (size_t i = 0; i < rows; ++i) width = std::max(width, averages[i].name.size());
  width = std::min<size_t>(width, 60);
  std::string text = fmt::format("{:{}}  {:>6} {:>12} {:>7} {:>12} {:>8}\n", "operator", width,
                                 "device", "self us", "self", "total us", "calls");
  for (size_t i = 0; i < rows; ++i) {
    const OperatorAverage& average = averages[i];
    text += fmt::format("{:{}}  {:>6} {:>12.1f} {:>6.1f}% {:>12.1f} {:>8}\n",
                        average.name.substr(0, width), width, average.on_cpu ? "cpu" : "gpu",
                        average.self_us, all_us > 0 ? 100 * average.self_us / all_us : 0.0,
                        average.total_us, average.calls);
  }
  return text;
}

}  // namespace levin
