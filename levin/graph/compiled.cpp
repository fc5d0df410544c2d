#include "levin/graph/compiled.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/difference.h"
#include "levin/graph/text_impl.h"

namespace levin::graph {
namespace {

constexpr int kMostRecordings = 4;  ///< of one entry, until two in a row must have been equal
/// A recording that was dropped after fewer replays was not worth it, and that happens so often.
constexpr int64_t kFewReplays = 8;
constexpr int kMostWasted = 3;

bool is_of(const ValueType& type, const at::Tensor& tensor) {
  if (!tensor.defined()) return type.kind == ValueKind::kUndefined;
  return type.dtype == tensor.scalar_type() && type.sizes == tensor.sizes() &&
         type.strides == tensor.strides() && type.device == tensor.device();
}

}  // namespace

/// What is known of the function under one set of conditions.
struct Compiled::Entry {
  explicit Entry(const Conditions& conditions) {
    for (const at::Tensor& input : conditions.inputs) inputs.push_back(ValueType::of(input));
    for (const std::string_view name : conditions.names) names.emplace_back(name);
    for (const Guard& guard : conditions.guards) {
      guards.push_back(guard.value);
      guard_names.push_back(guard.of.empty() ? std::string(guard.what)
                                             : fmt::format("{} of {}", guard.what, guard.of));
    }
  }

  bool holds_for(const Conditions& conditions) const;
  std::string difference_to(const Conditions& conditions) const;

  std::vector<ValueType> inputs;
  std::vector<std::string> names;
  std::vector<double> guards;
  std::vector<std::string> guard_names;
  int num_recordings = 0;
  int64_t num_replays = 0;  ///< of the recording
  int num_wasted = 0;
  std::string last_difference;
  std::optional<Graph> graph;  ///< the newest
  std::unique_ptr<Runner> runner;
  Recording recording;
  size_t num_results = 0;
  bool is_refused = false;
};

bool Compiled::Entry::holds_for(const Conditions& conditions) const {
  const bool same_numbers = std::ranges::equal(
      guards, conditions.guards, {}, [](double value) { return std::bit_cast<uint64_t>(value); },
      [](const Guard& guard) { return std::bit_cast<uint64_t>(guard.value); });
  return same_numbers && std::ranges::equal(inputs, conditions.inputs, is_of);
}

/// In words, the first that differs.
std::string Compiled::Entry::difference_to(const Conditions& conditions) const {
  for (size_t i = 0; i < std::min(inputs.size(), conditions.inputs.size()); ++i) {
    if (is_of(inputs[i], conditions.inputs[i])) continue;
    return fmt::format("{} is {}, was {}", conditions.names[i],
                       text_of(ValueType::of(conditions.inputs[i])), text_of(inputs[i]));
  }
  if (inputs.size() != conditions.inputs.size()) {
    return fmt::format("{} inputs, were {}", conditions.inputs.size(), inputs.size());
  }
  for (size_t i = 0; i < std::min(guards.size(), conditions.guards.size()); ++i) {
    if (guards[i] == conditions.guards[i].value) continue;
    return fmt::format("{} is {}, was {}", guard_names[i], conditions.guards[i].value, guards[i]);
  }
  return fmt::format("{} conditions, were {}", conditions.guards.size(), guards.size());
}

Compiled::Compiled(std::string name, CompiledOptions options)
    : name_(std::move(name)), options_(std::move(options)) {
  if (options_.engine == nullptr) options_.engine = make_replay_engine();
}
Compiled::~Compiled() = default;

const Graph* Compiled::graph() const {
  const auto replayed =
      std::ranges::find_if(entries_, [](const auto& e) { return e->runner != nullptr; });
  return replayed == entries_.end() ? nullptr : &*(*replayed)->graph;
}

std::vector<at::Tensor> Compiled::operator()(const Conditions& conditions,
                                             const Function& function) {
  if (recording_ != nullptr) {
    ++report_.eager;
    return function();
  }
  if (report_.eager + report_.recorded == 0) {
    ++report_.eager;
    Recording recording;
    return while_recording(recording, [&] {
      return options_.engine->first(call_of(conditions, function, &recording));
    });
  }
  Entry* entry = entry_for(conditions);
  if (entry != nullptr && is_ready(*entry, conditions)) return replay(*entry, conditions);
  if (entry == nullptr || entry->is_refused) {
    ++report_.eager;
    return function();
  }
  return record(*entry, conditions, function);
}

/// nullptr where there is none, and no room for one more.
Compiled::Entry* Compiled::entry_for(const Conditions& conditions) {
  for (auto place = entries_.begin(); place != entries_.end(); ++place) {
    if (!(*place)->holds_for(conditions)) continue;
    std::rotate(entries_.begin(), place, place + 1);
    return entries_.front().get();
  }
  if (is_full_) return nullptr;
  if (!entries_.empty()) {
    const std::string difference = entries_.front()->difference_to(conditions);
    is_full_ = entries_.size() >= options_.max_recordings;
    if (is_full_) {
      refuse(
          fmt::format("there are {} recordings of it, none for this call, where {}; give it the "
                      "same shapes and numbers more often",
                      options_.max_recordings, difference));
      return nullptr;
    }
    log::info("compile: {} is recorded anew: {}", name_, difference);
  }
  entries_.insert(entries_.begin(), std::make_unique<Entry>(conditions));
  return entries_.front().get();
}

/// Drops a recording that no longer holds.
bool Compiled::is_ready(Entry& entry, const Conditions& conditions) {
  if (entry.runner == nullptr) return false;
  std::string reason = entry.runner->trouble(conditions.inputs);
  for (const Recording::Dependence& dependence : entry.recording.dependences_) {
    const double now = dependence.number();
    if (now == dependence.value) continue;
    reason = fmt::format("{} is {}, was {}", dependence.what, now, dependence.value);
  }
  if (reason.empty()) return true;
  log::info("compile: {} is recorded anew: {}", name_, reason);
  entry.last_difference = reason;
  entry.runner.reset();
  entry.graph.reset();
  entry.num_wasted += entry.num_replays < kFewReplays ? 1 : 0;
  if (entry.num_wasted >= kMostWasted) refuse(entry, "it is recorded over and over: " + reason);
  return false;
}

std::vector<at::Tensor> Compiled::replay(Entry& entry, const Conditions& conditions) {
  ++report_.replayed;
  ++entry.num_replays;
  const Recording& recording = entry.recording;
  for (const Recording::Action& action : recording.before_) action();
  std::vector<at::Tensor> results = (*entry.runner)(conditions.inputs);
  for (const auto& [number, action] : recording.with_) action(results[entry.num_results + number]);
  for (const Recording::Action& action : recording.after_) action();
  results.resize(entry.num_results);
  return results;
}

RecordedCall Compiled::call_of(const Conditions& conditions, const Function& function,
                               Recording* recording) const {
  return {.inputs = conditions.inputs,
          .names = conditions.names,
          .state = options_.state ? options_.state() : std::vector<NamedTensor>(),
          .function = function,
          .more = [recording] { return recording->values_; }};
}

std::vector<at::Tensor> Compiled::while_recording(Recording& recording, const Function& run) {
  struct Current {
    Recording*& place;
    ~Current() { place = nullptr; }
  };
  std::vector<at::Tensor> results;
  {
    const Current current{recording_};
    recording_ = &recording;
    results = run();
  }
  for (const auto& [number, action] : recording.with_) action(recording.values_[number]);
  return results;
}

std::vector<at::Tensor> Compiled::record(Entry& entry, const Conditions& conditions,
                                         const Function& function) {
  ++report_.recorded;
  Recording recording;
  RecordingResult recorded;
  std::vector<at::Tensor> results = while_recording(recording, [&] {
    recorded = options_.engine->record(call_of(conditions, function, &recording));
    return std::move(recorded.results);
  });
  ++entry.num_recordings;
  if (!recorded.graph) {
    refuse(entry, recorded.trouble);
  } else {
    take(entry, std::move(*recorded.graph), std::move(recording), results.size());
  }
  return results;
}

void Compiled::take(Entry& entry, Graph graph, Recording recording, size_t num_results) {
  if (options_.on_recorded) options_.on_recorded(graph);
  if (!recording.refused_.empty()) return refuse(entry, recording.refused_);
  const std::vector<Node*> reads = graph.host_reads();
  if (!reads.empty()) {
    return refuse(
        entry,
        fmt::format("the host reads what {} gives{}; leave that out of it", reads.front()->target(),
                    reads.front()->source().empty() ? "" : ", in " + reads.front()->source()));
  }
  const auto difference = entry.graph ? first_difference(*entry.graph, graph) : std::nullopt;
  if (!entry.graph || difference) {
    if (difference) entry.last_difference = *difference;
    entry.graph = std::move(graph);
    if (entry.num_recordings >= kMostRecordings) {
      refuse(entry, "each call does something else: " + entry.last_difference);
    }
    return;
  }
  const auto pass = [&](Graph& changed) {
    try {
      if (options_.pass) options_.pass(changed);
    } catch (const Error& error) {
      log::warn("compile: {} is replayed without the pass: {}", name_, error.text());
    }
  };
  try {
    entry.runner = options_.engine->make_runner(graph, pass);
  } catch (const Error& error) {
    return refuse(entry, error.text());
  }
  entry.graph = std::move(graph);
  entry.recording = std::move(recording);
  entry.recording.values_.clear();
  entry.num_results = num_results;
  entry.num_recordings = 0;
  entry.num_replays = 0;
  const ReplayReport report = entry.runner->report();
  report_.replays.push_back(report);
  const std::string matmuls =
      report.num_matmuls > 0 ? fmt::format(" ({} products by faster kernels)", report.num_matmuls)
                             : "";
  log::info("compile: {} is replayed from here on: {} operators{}, {:.1f} MB", name_,
            report.num_operators, matmuls, static_cast<double>(report.arena_bytes) / 1e6);
}

void Compiled::refuse(Entry& entry, std::string reason) {
  entry.is_refused = true;
  entry.graph.reset();
  entry.runner.reset();
  refuse(std::move(reason));
}

void Compiled::refuse(std::string reason) {
  log::warn("compile: {} runs as it is: {}", name_, reason);
  report_.refusals.push_back(std::move(reason));
}

}  // namespace levin::graph
