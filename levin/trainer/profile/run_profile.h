#pragma once
// RunProfile: the profiler of a run (TrainerOptions::profiler): a table of the time of each hook and
// action, or a trace of operators. The loops name what they do by ActionScopes.
//
//   const ActionScope scope(profile_.get(), [&] { return "run_training_batch"; });
// Not for users.

#include <ATen/record_function.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/observe/profiler.h"

namespace levin::detail {

/// Times of actions by name, as lightning.pytorch.profilers.SimpleProfiler.
class LEVIN_API ActionTimes {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ActionTimes(Clock::time_point begin = Clock::now()) : begin_(begin) {}
  void add(const std::string& action, Clock::duration duration);
  /// Returns Lightning's table, as at this time: mean, calls, total and share of the time since the
  /// begin. An action contains the actions inside it, so shares add up to more than 100 %.
  std::string table(std::string_view stage, Clock::time_point now = Clock::now()) const;

 private:
  struct Total {
    int64_t calls = 0;
    Clock::duration duration = {};
  };
  Clock::time_point begin_;
  std::map<std::string, Total> totals_;
};

class RunProfile {
 public:
  /// kind: simple or pytorch. rank: of this process, in file names.
  RunProfile(const std::string& kind, int64_t rank);

  /// Begins the trace of operators, whose file goes into the folder.
  void begin_steps(const std::string& folder);
  /// Called after each batch.
  void end_step();
  /// Prints the table, and writes it to `{folder}/{stage}-{kind}.txt`; on rank 0.
  void finish(std::string_view stage, const std::string& folder);

 private:
  friend class ActionScope;
  void print(const std::string& table, std::string_view stage, const std::string& folder) const;

  std::string kind_;
  int64_t rank_;
  std::optional<ActionTimes> times_;
  std::unique_ptr<Profiler> trace_;
  std::string operators_;  ///< the table of operators
};

/// Times an action from its construction to its end; does nothing for a null profile.
class ActionScope {
 public:
  template <class Name>
  ActionScope(RunProfile* profile, const Name& name) : profile_(profile) {
    if (profile_ != nullptr) begin(name());
  }
  ~ActionScope() {
    if (profile_ != nullptr) end();
  }
  ActionScope(const ActionScope&) = delete;
  ActionScope& operator=(const ActionScope&) = delete;

 private:
  void begin(std::string name);
  void end();

  RunProfile* profile_;
  std::string name_;
  ActionTimes::Clock::time_point begin_;
  std::optional<at::RecordFunction> mark_;
};

}  // namespace levin::detail
