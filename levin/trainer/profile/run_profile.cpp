#include "levin/trainer/profile/run_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "levin/base/log.h"
#include "levin/files/atomic.h"

namespace levin::detail {
namespace {

double seconds(ActionTimes::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void ActionTimes::add(const std::string& action, Clock::duration duration) {
  Total& total = totals_[action];
  ++total.calls;
  total.duration += duration;
}

std::string ActionTimes::table(std::string_view stage, Clock::time_point now) const {
  std::vector<std::pair<std::string, Total>> rows(totals_.begin(), totals_.end());
  std::ranges::stable_sort(rows, std::greater(),
                           [](const auto& row) { return row.second.duration; });
  size_t width = 6;
  int64_t calls = 0;
  for (const auto& [action, total] : rows) {
    width = std::max(width, action.size());
    calls += total.calls;
  }
  const double whole_s = seconds(now - begin_);
  const auto row = [&](std::string_view action, const std::string& mean, const std::string& number,
                       const std::string& total, const std::string& share) {
    return fmt::format("| {:<{}} | {:>17} | {:>9} | {:>14} | {:>12} |\n", action, width, mean,
                       number, total, share);
  };
  const std::string head =
      row("Action", "Mean duration (s)", "Num calls", "Total time (s)", "Percentage %");
  const std::string line = std::string(head.size() - 1, '-') + "\n";
  std::string title(stage);
  std::ranges::transform(title, title.begin(),
                         [](char c) { return static_cast<char>(c - 'a' + 'A'); });
  std::string text =
      title + " Profiler Report\n" + line + head + line +
      row("Total", "-", std::to_string(calls), fmt::format("{:.5g}", whole_s), "100 %") + line;
  for (const auto& [action, total] : rows) {
    const double total_s = seconds(total.duration);
    text += row(action, fmt::format("{:.5g}", total_s / static_cast<double>(total.calls)),
                std::to_string(total.calls), fmt::format("{:.5g}", total_s),
                fmt::format("{:.5g}", whole_s > 0 ? 100.0 * total_s / whole_s : 0.0));
  }
  return text + line;
}

RunProfile::RunProfile(const std::string& kind, int64_t rank) : kind_(kind), rank_(rank) {
  if (kind_ == "simple") times_.emplace();
}

// The first step is slow, and the second warms Kineto up, as in Lightning's PyTorchProfiler.
void RunProfile::begin_steps(const std::string& folder) {
  if (kind_ != "pytorch" || trace_ != nullptr) return;
  trace_ = std::make_unique<Profiler>(ProfilerOptions{
      .schedule_option = {.wait = 1, .warmup = 1, .active = 3, .repeat = 1},
      .on_trace_ready =
          [this, folder](Profiler& profiler) {
            const std::string file = fmt::format("{}/profile_{}.json", folder, rank_);
            profiler.export_chrome_trace(file);
            operators_ = profiler.table();
            if (rank_ == 0) log::info("profiler: the trace of 3 steps is in {}", file);
          },
      .rank = rank_});
}

void RunProfile::end_step() {
  if (trace_) trace_->step();
}

void RunProfile::finish(std::string_view stage, const std::string& folder) {
  if (trace_) {
    trace_->stop();
    trace_.reset();
  }
  if (rank_ != 0) return;
  if (times_) return print(times_->table(stage), stage, folder);
  if (operators_.empty()) {
    log::warn("profiler: the run had too few steps for a trace; it records steps 3 to 5");
    return;
  }
  print(operators_, stage, folder);
}

void RunProfile::print(const std::string& table, std::string_view stage,
                       const std::string& folder) const {
  std::fputs(table.c_str(), stderr);
  if (folder.empty()) return;
  const std::string file = fmt::format("{}/{}-{}.txt", folder, stage, kind_);
  try {
    files::write_file_atomically(file, table);
  } catch (const std::exception& error) {
    log::warn("profiler: {}", error.what());
  }
}

void ActionScope::begin(std::string name) {
  name_ = std::move(name);
  if (profile_->trace_) {
    mark_.emplace(at::RecordScope::USER_SCOPE);
    if (mark_->isActive()) mark_->before("[levin]" + name_);
  }
  begin_ = ActionTimes::Clock::now();
}

void ActionScope::end() {
  if (profile_->times_) profile_->times_->add(name_, ActionTimes::Clock::now() - begin_);
}

}  // namespace levin::detail
