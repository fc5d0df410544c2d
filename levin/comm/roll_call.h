#pragma once
// RollCall: a word of each of some ranks, which the first of them gathers from the store and tells
// to all. A rank asks the store a few times, however many ranks there are.
//
//   const auto hosts = call_roll(store, {.topic = "host", .rank = 3, .size = 8}, host_identity());

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"

namespace levin::comm {

struct RollCall {
  std::string topic;  ///< its keys in the store begin with it
  int64_t rank = 0;   ///< this rank among the called ranks
  int64_t size = 1;
  std::vector<int64_t> names = {};  ///< names of the ranks in errors; empty: 0 to size - 1
  size_t longest_word = 256;
};

/// Some did not come in time.
struct LEVIN_API Absence final : std::exception {
  std::string ranks;  ///< "1,3"
  explicit Absence(std::string missing) : ranks(std::move(missing)) {}
  const char* what() const noexcept override { return ranks.c_str(); }
};

/// By rank. Waits for all, for as long as the store does; throws Absence, and "comm.connect" where
/// the store is lost, or holds words that no rank of this version would leave.
LEVIN_API std::vector<std::string> call_roll(c10d::Store& store, const RollCall& call,
                                             const std::string& word);

/// The same in the middle of a run, over a connection to the store that nobody else waits for, for
/// as long as the timeout, and some seconds more where the store hangs. look() is called from time
/// to time, and ends the waiting by what it throws.
LEVIN_API std::vector<std::string> call_roll_late(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const RollCall& call, const std::string& word,
                                                  std::chrono::milliseconds timeout,
                                                  const std::function<void()>& look);

}  // namespace levin::comm
