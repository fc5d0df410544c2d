#include "levin/comm/watchdog.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "levin/base/log.h"

namespace levin::comm {
namespace {

namespace fs = std::filesystem;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

constexpr std::chrono::milliseconds kLook(500);
constexpr std::chrono::seconds kPatience(2);
constexpr std::chrono::milliseconds kPause(20);
constexpr const char* kAsked = "flight/asked";

std::string key_of(int64_t question, int64_t rank) {
  return fmt::format("flight/{}/{}", question, rank);
}

void leave_record(c10d::Store& store, const FlightRecorder& recorder, int64_t question,
                  int64_t rank) {
  const std::string text = encode(recorder.operations());
  store.set(key_of(question, rank), std::vector<uint8_t>(text.begin(), text.end()));
}

FlightRecord collect(const StorePointer& shared, const FlightRecorder& recorder, int64_t rank,
                     const std::vector<int64_t>& ranks) {
  const auto store = shared->clone();
  const int64_t question = store->add(kAsked, 1);
  leave_record(*store, recorder, question, rank);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  FlightRecord record;
  while (record.size() < ranks.size() && std::chrono::steady_clock::now() < deadline) {
    for (const int64_t other : ranks) {
      if (record.contains(other) || !store->check({key_of(question, other)})) continue;
      const auto text = store->get(key_of(question, other));
      record[other] = decode_operations({reinterpret_cast<const char*>(text.data()), text.size()});
    }
    std::this_thread::sleep_for(kPause);
  }
  return record;
}

void write_record(const fs::path& file, const FlightRecord& record) {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [rank, operations] : record) {
    all[std::to_string(rank)] = nlohmann::json::parse(encode(operations));
  }
  std::error_code ignored;
  fs::create_directories(file.parent_path(), ignored);
  std::ofstream(file) << all.dump(1) << "\n";
}

}  // namespace

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
FlightRecord Watchdog::ask(const std::vector<int64_t>& ranks) const {
  auto found = std::make_shared<std::promise<FlightRecord>>();
  auto record = found->get_future();
  std::thread([found, store = store_, shared = shared_, ranks] {
    try {
      found->set_value(collect(store, shared->recorder, shared->rank, ranks));
    } catch (...) {
      found->set_value({{shared->rank, shared->recorder.operations()}});
    }
  }).detach();
  if (record.wait_for(kPatience + kPatience) != std::future_status::ready) {
    return {{shared_->rank, shared_->recorder.operations()}};
  }
  return record.get();
}

std::string Watchdog::diagnose(const std::vector<int64_t>& ranks, const std::string& group,
                               int64_t number) const {
  const FlightRecord record = ask(ranks);
  const char* folder = std::getenv("LEVIN_FLIGHT_DIR");
  const fs::path file = fs::path(folder == nullptr ? "levin_flight" : folder) /
                        fmt::format("rank_{}.json", shared_->rank);
  write_record(file, record);
  return fmt::format("{} (the last operations of these ranks are in {})",
                     explain(record, ranks, group, number), file.string());
}

}  // namespace levin::comm
