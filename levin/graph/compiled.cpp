#include "levin/graph/compiled.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <ranges>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/cost.h"
#include "levin/graph/difference.h"
#include "levin/graph/host_read.h"
#include "levin/graph/recordings_impl.h"

namespace levin::graph {
namespace {

constexpr int kMostSurprises = 3;  ///< until two recordings in a row must have been equal
/// A recording that was dropped after fewer replays was not worth it, and that happens so often.
constexpr int64_t kFewReplays = 8;
constexpr int kMostWasted = 3;
constexpr int kMostNewAnswers = 8;
constexpr int64_t kManyRecordings = 16;

std::string described_read(const Graph& graph) {
  const Node& read = *graph.host_reads().front();
  const std::string& source = read.source();
  return fmt::format("the host reads what {} gives{}", read.target(),
                     source.empty() ? "" : ", in " + source);
}

std::string difference_between(const Variant& before, const Variant& now) {
  const auto difference = first_difference(before.recorded, now.recorded);
  return difference ? difference->text : before.recording.difference_to(now.recording);
}

/// A function that is called by one that is recorded is a part of it.
thread_local bool is_within_another = false;

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
  if (is_within_another || is_ended_) return as_it_is(function);
  if (report_.eager + report_.recorded == 0) return first(conditions, function);
  if (*is_differentiated_) {
    is_ended_ = true;
    refuse(
        "backward goes through its results when it has returned, and a replay's know nothing of "
        "autograd; call backward in it, or return them detached");
    return as_it_is(function);
  }
  Recordings* recordings = recordings_for(conditions);
  if (recordings == nullptr || recordings->is_refused) return as_it_is(function);
  Variant* variant = recordings->find(conditions);
  while (is_ready(*recordings, variant, conditions)) {
    if (is_check_due(*variant)) return record(*recordings, conditions, function, variant);
    if (auto results = replay(*variant, conditions)) return std::move(*results);
    variant = recordings->find(conditions, *variant, *variant->runner->other_read());
  }
  if (recordings->is_refused) return as_it_is(function);
  return record(*recordings, conditions, function, nullptr);
}

std::vector<at::Tensor> Compiled::as_it_is(const Function& function) {
  ++report_.eager;
  return function();
}

std::vector<at::Tensor> Compiled::first(const Conditions& conditions, const Function& function) {
  ++report_.eager;
  Recording recording;
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
          fmt::format("there are {} recordings of it, none for this call, where {}; give it the "
                      "same shapes and numbers more often",
                      options_.max_recordings, difference));
      return nullptr;
    }
    log::info("compile: {} is recorded anew: {}", name_, difference);
  }
  recordings_.insert(recordings_.begin(), std::make_unique<Recordings>(conditions));
  return recordings_.front().get();
}

/// Drops one that no longer holds.
bool Compiled::is_ready(Recordings& recordings, Variant* variant, const Conditions& conditions) {
  if (variant == nullptr || variant->runner == nullptr) return false;
  const std::string trouble = variant->runner->trouble(conditions.inputs);
  if (trouble.empty()) return true;
  log::info("compile: {} is recorded anew: {}", name_, trouble);
  recordings.num_wasted += variant->num_replays < kFewReplays ? 1 : 0;
  recordings.drop(*variant);
  if (recordings.num_wasted >= kMostWasted) {
    refuse(recordings, "it is recorded over and over: " + trouble);
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
  const Recording& recording = variant.recording;
  for (const Recording::Before& before : recording.before_) before.action();
  auto ran = (*variant.runner)(conditions.inputs);
  if (!ran) {
    for (const Recording::Before& before : std::views::reverse(recording.before_)) before.undo();
    return std::nullopt;
  }
  std::vector<at::Tensor> results = std::move(*ran);
  ++report_.replayed;
  ++variant.num_replays;
  ++variant.num_unchecked;
  for (const auto& [number, action] : recording.with_) {
    action(results[variant.num_results + number]);
  }
  for (size_t i = 0; i < variant.kept.size(); ++i) {
    variant.kept[i].tensor().copy_(results[variant.num_results + variant.num_values + i]);
  }
  for (const Recording::Action& action : recording.after_) action();
  results.resize(variant.num_results);
  place_results(variant.memory, conditions.inputs, results);
  return results;
}

RecordedCall Compiled::call_of(const Conditions& conditions, const Function& function,
                               Recording* recording) const {
  return {.inputs = conditions.inputs,
          .names = conditions.names,
          .state = options_.state ? options_.state() : std::vector<NamedTensor>(),
          .watched = options_.watched ? options_.watched() : std::vector<at::Tensor>(),
          .function = function,
          .more = [recording] { return recording->values_; }};
}

std::vector<at::Tensor> Compiled::while_recording(Recording& recording, const Function& run) {
  struct Current {
    Recording*& place;
    ~Current() {
      place = nullptr;
      is_within_another = false;
      Recording::set_current(nullptr);
    }
  };
  std::vector<at::Tensor> results;
  {
    const Current current{recording_};
    recording_ = &recording;
    is_within_another = true;
    Recording::set_current(&recording);
    results = run();
  }
  for (const auto& [number, action] : recording.with_) action(recording.values_[number]);
  return results;
}

/// What came of a recording.
struct Compiled::Recorded {
  Graph graph;
  Recording recording;
  std::vector<ResultMemory> memory;
  std::vector<KeptTensor> kept;
  std::string trouble;
};

/// expected: what a replay would have done; nullptr where there is none.
std::vector<at::Tensor> Compiled::record(Recordings& recordings, const Conditions& conditions,
                                         const Function& function, Variant* expected) {
  Recorded recorded;
  RecordingResult result;
  std::vector<at::Tensor> results = while_recording(recorded.recording, [&] {
    RecordedCall call = call_of(conditions, function, &recorded.recording);
    if (expected != nullptr) {
      call.expected = &expected->recorded;
    } else if (!recordings.variants().empty()) {
      call.expected = &recordings.variants().back()->recorded;
    }
    result = options_.engine->record(call);
    return std::move(result.results);
  });
  if (expected == nullptr) ++report_.recorded;
  if (!result.graph) {
    refuse(recordings, result.trouble);
    return results;
  }
  recorded.graph = std::move(*result.graph);
  recorded.kept = std::move(result.kept);
  recorded.memory = memory_of(results, conditions.inputs, recorded.graph, recorded.trouble);
  for (const KeptTensor& kept : recorded.kept) {
    log::debug("compile: {} leaves a tensor with somebody, what {} gave", name_, kept.made_by);
  }
  // What somebody else has, too, is not to be the caller's.
  for (at::Tensor& tensor : results) {
    const bool is_kept = std::ranges::any_of(recorded.kept, [&](const KeptTensor& kept) {
      return tensor.defined() && kept.is_of(tensor);
    });
    if (is_kept) tensor = tensor.detach().clone();
  }
  take(recordings, conditions, std::move(recorded), expected);
  return results;
}

/// Why it cannot be replayed.
std::string Compiled::trouble_of(const Recorded& recorded) const {
  if (!recorded.recording.refused_.empty()) return recorded.recording.refused_;
  const bool can_give_up =
      options_.engine->compares_host_reads() &&
      std::ranges::none_of(recorded.recording.before_,
                           [](const Recording::Before& before) { return before.undo == nullptr; });
  if (!can_give_up && !recorded.graph.host_reads().empty()) {
    return described_read(recorded.graph) + "; leave that out of it";
  }
  for (const KeptTensor& before : kept_) {
    const bool is_joined = std::ranges::any_of(recorded.kept, [&](const KeptTensor& now) {
      return now.made_by == before.made_by && now.sizes == before.sizes;
    });
    // What was made once and lives on is state.
    if (!before.is_alive() || !is_joined) continue;
    return fmt::format(
        "it keeps a tensor of each call, what {} gave; return it or log it, or copy_ a detached "
        "one "
        "into one tensor",
        before.made_by);
  }
  return recorded.trouble;
}

void Compiled::take(Recordings& recordings, const Conditions& conditions, Recorded recorded,
                    Variant* expected) {
  if (expected == nullptr && options_.on_recorded) options_.on_recorded(recorded.graph);
  const std::string trouble = trouble_of(recorded);
  kept_ = recorded.kept;
  if (!trouble.empty()) return refuse(recordings, trouble);
  if (expected != nullptr) {
    const auto other = first_difference(expected->recorded, recorded.graph);
    if (other && other->is_read) {  // nothing that it promises to do
      expected = nullptr;
      ++report_.recorded;
    }
  }
  Graph runnable = expected == nullptr ? recorded.graph.clone() : Graph();
  std::string difference;
  Variant& variant =
      recordings.add(conditions, std::move(recorded.graph), recorded.recording, difference);
  if (expected != nullptr && &variant != expected) {
    if (difference.empty()) difference = difference_between(*expected, variant);
    return end_replays(*expected, difference);
  }
  variant.num_results = recorded.memory.size();
  variant.num_values = recorded.recording.values_.size();
  variant.memory = std::move(recorded.memory);
  variant.kept = std::move(recorded.kept);
  variant.recording = std::move(recorded.recording);
  variant.recording.values_.clear();
  if (expected != nullptr) {
    ++report_.checked;
    variant.check_is_due = false;
    variant.num_unchecked = 0;
    return;
  }
  if (report_.recorded == kManyRecordings && !conditions.arguments.empty()) {
    log::info(
        "compile: {} is called once for each new {}, which may decide what it does; where it does "
        "not, use the form without it (training_step(batch))",
        name_, conditions.arguments.front().what);
  }
  if (!difference.empty()) recordings.last_difference = difference;
  if (recordings.num_surprises >= kMostSurprises ||
      recordings.variants().size() > options_.max_recordings) {
    return refuse(recordings, "each call does something else: " + recordings.last_difference);
  }
  if (recordings.num_new_answers >= kMostNewAnswers) {
    return refuse(recordings, advice_for_answers(variant));
  }
  if (recordings.is_certain() && variant.runner == nullptr) {
    make_runner(recordings, variant, std::move(runnable));
  }
}

/// Of which each recording has others.
std::string Compiled::advice_for_answers(const Variant& variant) {
  if (!variant.recorded.host_reads().empty()) {
    return described_read(variant.recorded) +
           ", which is another value in each call; compute with the tensor itself (torch::where in "
           "place of an if), or read it outside of the step";
  }
  return fmt::format(
      "it asks for {}, which is another number in each call; give what it makes of that as a "
      "tensor that is written before the call",
      variant.recording.dependences_.front().what);
}

/// To be run by its code beside its replay.
bool Compiled::is_too_large(const Graph& graph) const {
  if (options_.check.most_bytes == 0) return false;
  const int64_t bytes = memory_of(graph).peak_bytes - state_bytes(graph);
  if (bytes <= options_.check.most_bytes) return false;
  log::warn(
      "compile: {} is not compared with its code, which would take {:.1f} MB, more than {:.1f}",
      name_, static_cast<double>(bytes) / 1e6,
      static_cast<double>(options_.check.most_bytes) / 1e6);
  return true;
}

void Compiled::make_runner(Recordings& recordings, Variant& variant, Graph graph) {
  variant.is_unchecked = is_too_large(graph);
  const auto pass = [&](Graph& changed) {
    try {
      if (options_.pass) options_.pass(changed);
    } catch (const Error& error) {
      log::warn("compile: {} is replayed without the pass: {}", name_, error.text());
    }
  };
  try {
    variant.runner = options_.engine->make_runner(graph, pass);
  } catch (const Error& error) {
    return refuse(recordings, error.text());
  }
  variant.changed = std::move(graph);
  const ReplayReport report = variant.runner->report();
  report_.replays.push_back(report);
  const std::string matmuls =
      report.num_matmuls > 0 ? fmt::format(" ({} products by faster kernels)", report.num_matmuls)
                             : "";
  log::info("compile: {} is replayed from here on: {} operators{}, {:.1f} MB", name_,
            report.num_operators, matmuls, static_cast<double>(report.arena_bytes) / 1e6);
}

/// What a call did is not what was recorded, and nothing that levin knows of had changed.
void Compiled::end_replays(const Variant& expected, const std::string& difference) {
  const std::string reason = fmt::format(
      "it does something else than what was recorded, by something that the host "
      "changed: {}; since it was last compared it was replayed {} times, which may have "
      "been wrong; give what changes as a tensor or an argument",
      difference, expected.num_unchecked);
  is_ended_ = true;
  recordings_.clear();
  refuse(reason);
  LEVIN_CHECK(!options_.check.stops, "graph.check", "{}: {}", name_, reason);
}

void Compiled::refuse(Recordings& recordings, std::string reason) {
  recordings.is_refused = true;
  recordings.clear();
  refuse(std::move(reason));
}

void Compiled::refuse(std::string reason) {
  log::warn("compile: {} runs as it is: {}", name_, reason);
  report_.refusals.push_back(std::move(reason));
}

}  // namespace levin::graph
