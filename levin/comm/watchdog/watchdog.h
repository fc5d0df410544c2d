#pragma once
// Watchdog: a thread that hands out this process's flight record when another rank asks, whatever
// the process is busy or stuck with, and asks the others for theirs.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/watchdog/flight_recorder.h"

namespace levin::comm {

class LEVIN_API Watchdog {
 public:
  /// A store that all ranks of the run share; asked through a connection of its own.
  Watchdog(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  FlightRecorder& recorder() { return shared_->recorder; }
  /// Says in words what the records of these ranks tell about that operation. The first rank that
  /// asks has all ranks leave their records, writes these to levin_flight/rank_N.json (or the
  /// folder that the variable LEVIN_FLIGHT_DIR names; rank_N.2.json where an earlier run has left
  /// one) and tells the others, who write their own. Takes less than two seconds unless the store
  /// hangs, and then some seconds.
  std::string diagnose(const std::vector<int64_t>& ranks, const std::string& group,
                       int64_t number) const;
  /// The same where another rank asks, or begins to within an instant: that this one's peers are
  /// gone may come of their having waited in vain.
  std::optional<std::string> heard(const std::string& group, int64_t number) const;

 private:
  /// Outlives the watchdog where the store hangs.
  struct Shared {
    FlightRecorder recorder;
    c10::intrusive_ptr<c10d::Store> store;
    int64_t rank = 0;
    std::mutex record_mutex;
    std::filesystem::path record;  ///< this rank's file, once something was written
    std::mutex mutex;
    std::condition_variable wake;
    bool ending = false;
    bool ended = false;
  };

  static std::filesystem::path write_record(Shared& shared, const FlightRecord& record);
  static void answer(const std::shared_ptr<Shared>& shared);
  template <class Find>
  std::optional<std::string> in_time(const Find& find) const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace levin::comm
