#include "levin/comm/watchdog/flight_recorder.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>

#include "levin/base/json.h"

namespace levin::comm {
namespace {

constexpr int64_t kLateNamed = 16;

double clock_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string listed(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  }
  return text;
}

const Operation* last_of(const std::vector<Operation>& operations, const std::string& group) {
  const auto found =
      std::find_if(operations.rbegin(), operations.rend(),
                   [&](const Operation& operation) { return operation.group == group; });
  return found == operations.rend() ? nullptr : &*found;
}

const Operation* find(const std::vector<Operation>& operations, const std::string& group,
                      int64_t number) {
  const auto found = std::ranges::find_if(operations, [&](const Operation& operation) {
    return operation.group == group && operation.number == number;
  });
  return found == operations.end() ? nullptr : &*found;
}

std::string lateness(int64_t rank, const Operation* last) {
  if (last == nullptr) return fmt::format("rank {} has called none yet", rank);
  const std::string state = last->finished_s < 0
                                ? fmt::format("under way for {:.1f} s", last->started_s)
                                : fmt::format("finished {:.1f} s ago", last->finished_s);
  return fmt::format("rank {} did not call it: its last was number {}, {}, {}", rank, last->number,
                     last->text, state);
}

}  // namespace

uint64_t FlightRecorder::begin(const std::string& group, int64_t number, const char* name,
                               at::ScalarType type, int64_t count, int64_t whole) {
  const std::lock_guard lock(mutex_);
  Total& total = totals_[name];
  ++total.calls;
  total.bytes += (whole < 0 ? count : whole) * static_cast<int64_t>(c10::elementSize(type));
  ring_[next_ % ring_.size()] = {&group, number, name, type, count, clock_now(), -1};
  return next_++;
}

void FlightRecorder::end(uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  if (next_ - ticket <= ring_.size()) ring_[ticket % ring_.size()].finished = clock_now();
}

std::map<std::string, FlightRecorder::Total> FlightRecorder::totals() const {
  const std::lock_guard lock(mutex_);
  return {totals_.begin(), totals_.end()};
}

std::vector<Operation> FlightRecorder::operations() const {
  const std::lock_guard lock(mutex_);
  const double now = clock_now();
  std::vector<Operation> all;
  const uint64_t kept = std::min<uint64_t>(next_, ring_.size());
  for (uint64_t ticket = next_ - kept; ticket < next_; ++ticket) {
    const Entry& entry = ring_[ticket % ring_.size()];
    std::string text = entry.name;
    if (entry.count > 0) {
      text += fmt::format(" of {} x {}", entry.count, c10::toString(entry.type));
    }
    all.push_back({*entry.group, entry.number, std::move(text), now - entry.started,
                   entry.finished < 0 ? -1 : now - entry.finished});
  }
  return all;
}

std::string encode(const std::vector<Operation>& operations) {
  nlohmann::json list = nlohmann::json::array();
  for (const Operation& operation : operations) {
    list.push_back({{"group", operation.group},
                    {"number", operation.number},
                    {"operation", operation.text},
                    {"started_s_ago", operation.started_s},
                    {"finished_s_ago", operation.finished_s}});
  }
  return list.dump();
}

std::vector<Operation> decode_operations(std::string_view text) {
  std::vector<Operation> operations;
  try {
    for (const auto& entry : nlohmann::json::parse(levin::detail::shallow_json(text))) {
      const auto& number = entry.at("number");
      if (!number.is_number_integer()) return {};  // other numbers would be read as any integer
      operations.push_back({entry.at("group"), number, entry.at("operation"),
                            entry.at("started_s_ago"), entry.at("finished_s_ago")});
    }
  } catch (const nlohmann::json::exception&) {
    operations.clear();
  }
  return operations;
}

std::string explain(const FlightRecord& record, const std::vector<int64_t>& members,
                    const std::string& group, int64_t number) {
  std::vector<int64_t> waiting, done, silent;
  std::vector<std::string> late;
  int64_t num_late = 0;
  for (const int64_t rank : members) {
    const auto operations = record.find(rank);
    if (operations == record.end()) {
      silent.push_back(rank);
      continue;
    }
    if (const Operation* operation = find(operations->second, group, number)) {
      (operation->finished_s < 0 ? waiting : done).push_back(rank);
    } else if (++num_late <= kLateNamed) {
      late.push_back(lateness(rank, last_of(operations->second, group)));
    }
  }
  std::string text = fmt::format("of number {} of group {}: ", number, group);
  const char* between = "";
  const auto add = [&](const std::string& part) { text += std::exchange(between, "; ") + part; };
  if (!waiting.empty()) add(listed(waiting) + " wait in it");
  if (!done.empty()) add(listed(done) + " have finished it");
  for (const std::string& one : late) add(one);
  if (num_late > kLateNamed) add(fmt::format("and {} more did not call it", num_late - kLateNamed));
  if (!silent.empty()) add(listed(silent) + " did not answer: stopped or ended");
  return text;
}

}  // namespace levin::comm
