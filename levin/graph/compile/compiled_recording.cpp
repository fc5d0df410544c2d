// How a Compiled records: the result of a recording, and the reason if there is none.
#include <algorithm>
#include <optional>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/compile/difference.h"
#include "levin/graph/compile/recordings_impl.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/record/current_place.h"

namespace levin::graph {
namespace {

constexpr int kMostSurprises = 3;  ///< until two recordings in a row must have been equal
constexpr int kMostNewAnswers = 8;
constexpr int64_t kManyRecordings = 16;

std::string described_read(const Graph& graph) {
  const Node& read = *graph.host_reads().front();
  const std::string& source = read.source();
  return fmt::format("the host reads the result of {}{}", read.target(),
                     source.empty() ? "" : ", in " + source);
}

/// A reason without its numbers, but with that of its line: those of another shape are others.
std::string kind_of(std::string_view reason) {
  constexpr std::string_view kNumbers = "0123456789.-[], ";
  std::string kind;
  bool is_line = false;
  for (const char letter : reason) {
    is_line = letter == ':' || (is_line && letter >= '0' && letter <= '9');
    if (is_line || kNumbers.find(letter) == std::string_view::npos) kind += letter;
  }
  return kind;
}

std::string difference_between(const Variant& before, const Variant& now) {
  const auto difference = first_difference(before.recorded, now.recorded);
  return difference ? difference->text : before.recording.difference_to(now.recording);
}

}  // namespace

RecordedCall Compiled::call_of(const Conditions& conditions, const Function& function,
                               HostPart* recording) const {
  return {.inputs = conditions.inputs,
          .names = conditions.names,
          .state = options_.state ? options_.state() : std::vector<NamedTensor>(),
          .watched = options_.watched ? options_.watched() : std::vector<at::Tensor>(),
          .function = function,
          .more = [recording] { return recording->values_; }};
}

std::vector<at::Tensor> Compiled::while_recording(HostPart& recording, const Function& run) {
  struct Current {
    HostPart*& place;
    ~Current() {
      place = nullptr;
      HostPart::set_current(nullptr);
    }
  };
  std::vector<at::Tensor> results;
  {
    const Current current{recording_};
    recording_ = &recording;
    HostPart::set_current(&recording);
    results = run();
  }
  for (const auto& [number, action] : recording.with_) action(recording.values_[number]);
  return results;
}

/// The result of a recording.
struct Compiled::Recorded {
  Graph graph;
  HostPart recording;
  std::vector<ResultMemory> memory;
  std::vector<KeptTensor> kept;
  std::string reason;  ///< why it cannot be replayed; empty if it can
};

/// expected: the recording that a replay would have run; nullptr if there is none.
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
    const std::string& said =
        recorded.recording.refused_;  // by name, where the operators show it too
    refuse(recordings, said.empty() ? result.reason_not_recorded : said);
    return results;
  }
  recorded.graph = std::move(*result.graph);
  recorded.kept = std::move(result.kept);
  recorded.memory = memory_of(results, conditions.inputs, recorded.graph, recorded.reason);
  for (const KeptTensor& kept : recorded.kept) {
    log::debug("compile: {} makes a tensor that is still in use after it, the result of {}", name_,
               kept.made_by);
  }
  // The caller gets a copy of a tensor that somebody else holds too.
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
std::string Compiled::reason_not_replayable(const Recorded& recorded) const {
  if (!recorded.recording.refused_.empty()) return recorded.recording.refused_;
  if (!options_.engine->compares_host_reads() && !recorded.graph.host_reads().empty()) {
    return described_read(recorded.graph) + "; leave that read out of the function";
  }
  for (const KeptTensor& before : kept_) {
    const auto joined = std::ranges::find_if(recorded.kept, [&](const KeptTensor& now) {
      return now.made_by == before.made_by && now.sizes == before.sizes;
    });
    // A tensor that was made once and lives on is state.
    if (!before.is_alive() || joined == recorded.kept.end()) continue;
    return fmt::format(
        "it keeps a tensor of each call, the result of {}{}; return or log it, or keep one tensor "
        "and copy_ each result, detached, into it",
        before.made_by, place_of(joined->frames));
  }
  return recorded.reason;
}

void Compiled::take(Recordings& recordings, const Conditions& conditions, Recorded recorded,
                    Variant* expected) {
  if (expected == nullptr && options_.on_recorded) options_.on_recorded(recorded.graph);
  const std::string reason = reason_not_replayable(recorded);
  kept_ = recorded.kept;
  if (!reason.empty()) return refuse(recordings, reason);
  const Variant* equal = nullptr;
  if (expected != nullptr) {
    const auto other = first_difference(expected->recorded, recorded.graph);
    if (!other) equal = expected;
    if (other && other->is_read) {  // nothing that it promises to do
      expected = nullptr;
      ++report_.recorded;
    }
  }
  Graph runnable = expected == nullptr ? recorded.graph.clone() : Graph();
  std::string difference;
  Variant& variant =
      recordings.add(conditions, std::move(recorded.graph), recorded.recording, difference, equal);
  if (expected != nullptr && &variant != expected) {
    if (difference.empty()) difference = difference_between(*expected, variant);
    return end_replays(*expected, conditions, difference);
  }
  variant.num_results = recorded.memory.size();
  variant.num_values = recorded.recording.values_.size();
  variant.memory = std::move(recorded.memory);
  variant.kept = std::move(recorded.kept);
  variant.recording = std::move(recorded.recording);
  variant.recording.values_.clear();
  variant.compared_at = {.step = step_of(conditions), .num_replayed = report_.replayed};
  if (expected != nullptr) {
    ++report_.checked;
    variant.check_is_due = false;
    return;
  }
  if (report_.recorded == kManyRecordings && !conditions.arguments.empty()) {
    log::info(
        "compile: {} runs once eagerly for each new {}, because its work may depend on it; if it "
        "does not, use the overload without it (training_step(batch))",
        name_, conditions.arguments.front().what);
  }
  if (!difference.empty()) recordings.last_difference = difference;
  if (recordings.num_surprises >= kMostSurprises ||
      recordings.variants().size() > options_.max_recordings) {
    return refuse(recordings,
                  "each call differs from the recordings: " + recordings.last_difference);
  }
  if (recordings.num_new_answers >= kMostNewAnswers) {
    return refuse(recordings, advice_for_answers(variant));
  }
  if (recordings.is_certain() && variant.runner == nullptr) {
    make_runner(recordings, variant, std::move(runnable));
  }
}

/// The advice for a function whose recordings differ in the answers that it got.
std::string Compiled::advice_for_answers(const Variant& variant) {
  if (!variant.recorded.host_reads().empty()) {
    return described_read(variant.recorded) +
           ", which is another value in each call; compute with the tensor itself (torch::where "
           "instead of an if), or read it outside of the step";
  }
  const HostPart::Dependence& answer = variant.recording.dependences_.front();
  return fmt::format(
      "it reads {}, which is another number in each call{}; pass what it computes from that number "
      "as a tensor that is written before the call, or as a levin::StepValue",
      answer.what, place_of(answer.frames));
}

/// To be run by its code beside its replay.
bool Compiled::is_too_large(const Graph& graph) const {
  if (options_.check.most_bytes == 0) return false;
  const int64_t bytes = memory_of(graph).peak_bytes - state_bytes(graph);
  if (bytes <= options_.check.most_bytes) return false;
  log::warn(
      "compile: {} is not compared with its eager run, which needs {:.1f} MB, more than the limit "
      "of {:.1f} MB",
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
    variant.runner = options_.engine->make_runner(
        graph, pass, options_.replay ? options_.replay() : ReplayOptions{});
  } catch (const Error& error) {
    return refuse(recordings, error.text());
  }
  variant.changed = std::move(graph);
  const ReplayReport report = variant.runner->report();
  report_.replays.push_back(report);
  const std::string matmuls =
      report.num_matmuls > 0
          ? fmt::format(" ({} matrix products with faster kernels)", report.num_matmuls)
          : "";
  log::info("compile: {} is replayed from here on: {} operators{}, {:.1f} MB", name_,
            report.num_operators, matmuls, static_cast<double>(report.arena_bytes) / 1e6);
}

/// Ends the replays: a call ran something else than its recording, though no known condition
/// changed.
void Compiled::end_replays(const Variant& expected, const Conditions& conditions,
                           const std::string& difference) {
  const auto& [step, num_replayed] = expected.compared_at;
  const std::string reason = fmt::format(
      "at step {} it differs from its recording, because something changed on the host: {}; it was "
      "last compared at step {}, and the {} replays since then may have been wrong; pass the value "
      "that changes as a tensor or an argument",
      step_of(conditions), difference, step, report_.replayed - num_replayed);
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

/// Said once, for however many shapes and numbers.
void Compiled::refuse(std::string reason) {
  const auto is_said = [kind = kind_of(reason)](const std::string& other) {
    return kind_of(other) == kind;
  };
  if (std::ranges::any_of(report_.refusals, is_said)) return;
  log::warn("compile: {} runs eagerly: {}", name_, reason);
  report_.refusals.push_back(std::move(reason));
}

}  // namespace levin::graph
