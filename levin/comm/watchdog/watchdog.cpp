#include "levin/comm/watchdog/watchdog.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <span>

#include "levin/base/posix.h"
#include "levin/files/writing/output.h"

namespace levin::comm {
namespace {

namespace fs = std::filesystem;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

constexpr std::chrono::milliseconds kLook(500);
constexpr std::chrono::milliseconds kPatience(1500);  // three looks of who is alive
constexpr std::chrono::milliseconds kVerdict(500);    // for a verdict to be written and read
constexpr std::chrono::milliseconds kHearing(300);
constexpr std::chrono::milliseconds kPause(20);
constexpr int64_t kAnsweredAtOnce = 4;
constexpr size_t kLongestRecord = size_t{1} << 18;
constexpr const char* kAsked = "flight/asked";

std::string key_of(int64_t question, int64_t rank) {
  return fmt::format("flight/{}/{}", question, rank);
}

std::string count_of(int64_t question) { return fmt::format("flight/{}/count", question); }

void put(c10d::Store& store, const std::string& key, std::string_view text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

/// "" for what is longer than any rank of this run would write.
std::string text_at(c10d::Store& store, const std::string& key) {
  const auto text = store.get(key);
  return text.size() > kLongestRecord ? "" : std::string(text.begin(), text.end());
}

void leave_record(c10d::Store& store, const FlightRecorder& recorder, int64_t question,
                  int64_t rank) {
  put(store, key_of(question, rank), encode(recorder.operations()));
  store.add(count_of(question), 1);
}

/// One number is looked at while they come, so that a question costs each rank a few requests.
FlightRecord collect(c10d::Store& store, const FlightRecorder& recorder, int64_t rank,
                     const std::vector<int64_t>& ranks) {
  const int64_t question = store.add(kAsked, 1);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  FlightRecord record = {{rank, recorder.operations()}};
  // This rank's watchdog answers too, and so may ranks that are not in the group.
  while (store.add(count_of(question), 0) < std::ssize(ranks) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPause);
  }
  for (const int64_t other : ranks) {
    if (record.contains(other) || !store.check({key_of(question, other)})) continue;
    record[other] = decode_operations(text_at(store, key_of(question, other)));
  }
  return record;
}

/// Returns the key under which the ranks that ask about an operation meet. An operation between two
/// ranks has no number.
std::string case_of(const std::string& group, int64_t number, int64_t rank) {
  return number > 0 ? fmt::format("flight/case/{}/{}", group, number)
                    : fmt::format("flight/case/{}/of rank {}", group, rank);
}

std::string verdict_of(const std::string& where) { return where + "/verdict"; }

fs::path file_of(int64_t rank) {
  const char* folder = std::getenv("LEVIN_FLIGHT_DIR");
  return fs::path(folder == nullptr ? "levin_flight" : folder) / fmt::format("rank_{}.json", rank);
}

std::string text_of(const FlightRecord& record) {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [rank, operations] : record) {
    all[std::to_string(rank)] = nlohmann::json::parse(encode(operations));
  }
  return all.dump(1) + "\n";
}

}  // namespace

// Returns the name of a file of this run. If it cannot be written, the error's text still has the
// record in words.
fs::path Watchdog::write_record(Shared& shared, const FlightRecord& record) {
  const std::string text = text_of(record);
  const std::lock_guard lock(shared.record_mutex);
  fs::path file = shared.record.empty() ? file_of(shared.rank) : shared.record;
  const posix::Descriptor opened = shared.record.empty()
                                       ? files::create_beside(file)
                                       : files::open_own(file, O_WRONLY | O_TRUNC);
  if (!opened) return file;
  shared.record = file;
  posix::write_all(opened, std::as_bytes(std::span(text)));
  return file;
}

Watchdog::Watchdog(const StorePointer& store, int64_t rank)
    : store_(store), shared_(std::make_shared<Shared>()) {
  shared_->store = store->clone();
  shared_->rank = rank;
  thread_ = std::thread([shared = shared_] { answer(shared); });
}

Watchdog::~Watchdog() {
  std::unique_lock lock(shared_->mutex);
  shared_->ending = true;
  shared_->wake.notify_all();
  const bool ended = shared_->wake.wait_for(lock, kLook, [&] { return shared_->ended; });
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
}

void Watchdog::answer(const std::shared_ptr<Shared>& shared) {
  int64_t answered = 0;
  std::unique_lock lock(shared->mutex);
  try {
    while (!shared->wake.wait_for(lock, kLook, [&] { return shared->ending; })) {
      lock.unlock();
      const int64_t asked = shared->store->add(kAsked, 0);
      // If more questions are open than a run asks at a time, nobody waits for the oldest.
      answered = std::max(answered, asked - kAnsweredAtOnce);
      for (; answered < asked; ++answered) {
        leave_record(*shared->store, shared->recorder, answered + 1, shared->rank);
      }
      lock.lock();
    }
  } catch (const std::exception&) {
    // The store is gone, and with it who could ask.
    if (!lock.owns_lock()) lock.lock();
  }
  shared->ended = true;
  shared->wake.notify_all();
}

// In a thread of its own: a store whose server was stopped never answers.
template <class Find>
std::optional<std::string> Watchdog::in_time(const Find& find) const {
  auto found = std::make_shared<std::promise<std::optional<std::string>>>();
  auto text = found->get_future();
  std::thread([found, find, store = store_] {
    try {
      found->set_value(find(*store->clone()));
    } catch (...) {
      found->set_value(std::nullopt);
    }
  }).detach();
  if (text.wait_for(2 * (kPatience + kVerdict)) != std::future_status::ready) return std::nullopt;
  return text.get();
}

std::string Watchdog::diagnose(const std::vector<int64_t>& ranks, const std::string& group,
                               int64_t number) const {
  const auto judge = [=, shared = shared_](c10d::Store& store) -> std::optional<std::string> {
    const FlightRecord record = collect(store, shared->recorder, shared->rank, ranks);
    const fs::path file = write_record(*shared, record);
    return explain(record, ranks, group, number) +
           fmt::format(" (the last operations of these ranks are in {})", file.string());
  };
  const auto found = in_time([=, shared = shared_](c10d::Store& store) {
    const std::string where = case_of(group, number, shared->rank);
    if (store.add(where, 1) == 1) {
      auto text = judge(store);
      put(store, verdict_of(where), *text);
      return text;
    }
    write_record(*shared, {{shared->rank, shared->recorder.operations()}});
    try {
      store.wait({verdict_of(where)}, kPatience + kVerdict);
    } catch (const std::exception&) {
      return judge(store);  // who asked first is gone
    }
    return std::optional(text_at(store, verdict_of(where)));
  });
  if (found) return *found;
  const FlightRecord own = {{shared_->rank, shared_->recorder.operations()}};
  const fs::path file = write_record(*shared_, own);
  return fmt::format(
      "the store of the run does not answer; the last operations of this rank are in "
      "{}",
      file.string());
}

std::optional<std::string> Watchdog::heard(const std::string& group, int64_t number) const {
  return in_time([=, shared = shared_](c10d::Store& store) -> std::optional<std::string> {
    const std::string where = case_of(group, number, shared->rank);
    const auto deadline = std::chrono::steady_clock::now() + kHearing;
    while (!store.check({where})) {
      if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(kPause);
    }
    store.wait({verdict_of(where)}, kPatience + kVerdict);
    return text_at(store, verdict_of(where));
  });
}

}  // namespace levin::comm
