#include "levin/graph/compile/compiled.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "levin/base/log.h"
#include "levin/graph/compile/recordings_impl.h"

namespace levin::graph {
namespace {

/// A recording that was dropped after fewer replays was not worth it, and that happens so often.
constexpr int64_t kFewReplays = 8;
constexpr int kMostWasted = 3;

}  // namespace

Compiled::Compiled(std::string name, CompiledOptions options)
    : name_(std::move(name)), options_(std::move(options)) {
  if (options_.engine == nullptr) options_.engine = make_replay_engine();
}
Compiled::~Compiled() = default;

const Graph* Compiled::graph() const {
  for (const auto& recordings : recordings_) {
    for (const auto& variant : recordings->variants()) {
      if (variant->runner != nullptr) return &*variant->changed;
    }
  }
  return nullptr;
}

std::vector<at::Tensor> Compiled::operator()(const Conditions& conditions,
                                             const Function& function) {
  ++num_calls_;
  // A function that a recorded function calls is part of that recording.
  if (HostPart::current() != nullptr || is_ended_) return run_eager(function);
  if (report_.eager + report_.recorded == 0) return first(conditions, function);
  if (*is_differentiated_) {
    is_ended_ = true;
    refuse(
        "backward() runs through its results after it has returned, but the results of a replay "
        "have no autograd graph; call backward() in the function, or return detached results");
    return run_eager(function);
  }
  Recordings* recordings = recordings_for(conditions);
  if (recordings == nullptr || recordings->is_refused) return run_eager(function);
  Variant* variant = recordings->find(conditions);
  while (is_ready(*recordings, variant, conditions)) {
    if (is_check_due(*variant)) {
      variant->runner->leave_memory();  // the function needs about as much
      return record(*recordings, conditions, function, variant);
    }
    if (auto results = replay(*variant, conditions)) return std::move(*results);
    variant = recordings->find(conditions, *variant, *variant->runner->other_read());
  }
  if (recordings->is_refused) return run_eager(function);
  return record(*recordings, conditions, function, nullptr);
}

int64_t Compiled::step_of(const Conditions& conditions) const {
  return conditions.step.value_or(num_calls_ - 1);
}

std::vector<at::Tensor> Compiled::run_eager(const Function& function) {
  ++report_.eager;
  return function();
}

std::vector<at::Tensor> Compiled::first(const Conditions& conditions, const Function& function) {
  ++report_.eager;
  HostPart recording;
  std::vector<at::Tensor> results = while_recording(
      recording, [&] { return options_.engine->first(call_of(conditions, function, &recording)); });
  watch_results(results);
  return results;
}

/// Backward may go through them when the call is over: then they are no results of a replay's.
void Compiled::watch_results(const std::vector<at::Tensor>& results) {
  for (const at::Tensor& result : results) {
    if (!result.defined() || !result.requires_grad() || result.is_leaf()) continue;
    result.register_hook(
        [is_differentiated = is_differentiated_](const at::Tensor&) { *is_differentiated = true; });
  }
}

/// nullptr where there are none, and no room for more.
Recordings* Compiled::recordings_for(const Conditions& conditions) {
  for (auto place = recordings_.begin(); place != recordings_.end(); ++place) {
    if (!(*place)->holds_for(conditions)) continue;
    std::rotate(recordings_.begin(), place, place + 1);
    return recordings_.front().get();
  }
  if (is_full_) return nullptr;
  if (!recordings_.empty()) {
    const std::string difference = recordings_.front()->difference_to(conditions);
    is_full_ = recordings_.size() >= options_.max_recordings;
    if (is_full_) {
      refuse(
          fmt::format("there are {} recordings of it, and none fits this call, in which {}; call "
                      "it with fewer different shapes and numbers",
                      options_.max_recordings, difference));
      return nullptr;
    }
    log::info("compile: {} is recorded again: {}", name_, difference);
  }
  recordings_.insert(recordings_.begin(), std::make_unique<Recordings>(conditions));
  return recordings_.front().get();
}

/// Drops one that no longer holds.
bool Compiled::is_ready(Recordings& recordings, Variant* variant, const Conditions& conditions) {
  if (variant == nullptr || variant->runner == nullptr) return false;
  const std::string reason = variant->runner->reason_not_replayable(conditions.inputs);
  if (reason.empty()) return true;
  log::info("compile: {} is recorded again: {}", name_, reason);
  recordings.num_wasted += variant->num_replays < kFewReplays ? 1 : 0;
  recordings.drop(*variant);
  if (recordings.num_wasted >= kMostWasted) {
    refuse(recordings, "it is recorded too many times: " + reason);
  }
  return false;
}

void Compiled::check_next() {
  for (const auto& recordings : recordings_) {
    for (const auto& variant : recordings->variants()) variant->check_is_due = true;
  }
}

bool Compiled::is_check_due(Variant& variant) const {
  const int64_t every = options_.check.every;
  // A tensor that it left with somebody is gone: the next one is another.
  if (!std::ranges::all_of(variant.kept, &KeptTensor::is_alive)) return true;
  if (every == CheckOptions::kNever || variant.is_unchecked) return false;
  ++variant.num_calls;
  if (variant.check_is_due) return true;
  return every == CheckOptions::kDoubling
             ? std::has_single_bit(static_cast<uint64_t>(variant.num_calls))
             : variant.num_calls % every == 0;
}

/// Nothing where the host would read something else.
std::optional<std::vector<at::Tensor>> Compiled::replay(Variant& variant,
                                                        const Conditions& conditions) {
  const HostPart& recording = variant.recording;
  for (const HostPart::Action& action : recording.before_) action();
  auto ran = (*variant.runner)(conditions.inputs);
  if (!ran) return std::nullopt;
  std::vector<at::Tensor> results = std::move(*ran);
  ++report_.replayed;
  ++variant.num_replays;
  for (const auto& [number, action] : recording.with_) {
    action(results[variant.num_results + number]);
  }
  for (size_t i = 0; i < variant.kept.size(); ++i) {
    variant.kept[i].tensor().copy_(results[variant.num_results + variant.num_values + i]);
  }
  for (const HostPart::Action& action : recording.after_) action();
  results.resize(variant.num_results);
  place_results(variant.memory, conditions.inputs, results);
  return results;
}

}  // namespace levin::graph
