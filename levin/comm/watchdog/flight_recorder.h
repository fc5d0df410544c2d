#pragma once
// FlightRecorder: the last operations of this process, and what those of all ranks together say
// about one that failed.
//
//   const auto ticket = recorder.begin("world", 42, "all_reduce", at::kFloat, 1000);
//   ...; recorder.end(ticket);

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::comm {

/// One recorded operation.
struct Operation {
  std::string group;       ///< "world", "world/part0"
  int64_t number = 0;      ///< the group's, from 1
  std::string text;        ///< "all_reduce of 1000 x Float"
  double started_s = 0;    ///< before now, seconds
  double finished_s = -1;  ///< before now, seconds; -1: it has not
};

class LEVIN_API FlightRecorder {
 public:
  explicit FlightRecorder(size_t kept = 256) : ring_(kept) {}

  /// name and group must outlive the recorder. whole: elements of the whole tensor, of which count
  /// are this rank's; below 0: count.
  uint64_t begin(const std::string& group, int64_t number, const char* name, at::ScalarType type,
                 int64_t count, int64_t whole = -1);
  void end(uint64_t ticket);
  /// Oldest first.
  std::vector<Operation> operations() const;
  /// All operations so far, by name.
  struct Total {
    int64_t calls = 0;
    int64_t bytes = 0;  ///< bytes of the whole tensors
  };
  std::map<std::string, Total> totals() const;

 private:
  struct Entry {
    const std::string* group = nullptr;
    int64_t number = 0;
    const char* name = nullptr;
    at::ScalarType type = at::kByte;
    int64_t count = 0;
    double started = 0;  ///< on a clock that all threads share
    double finished = -1;
  };

  mutable std::mutex mutex_;
  std::vector<Entry> ring_;
  std::map<std::string_view, Total> totals_;
  uint64_t next_ = 0;
};

/// Operations of each rank that has left some, by its number in the run.
using FlightRecord = std::map<int64_t, std::vector<Operation>>;

/// JSON, and back; what is no such text gives no operations.
LEVIN_API std::string encode(const std::vector<Operation>& operations);
LEVIN_API std::vector<Operation> decode_operations(std::string_view text);

/// Says which ranks wait in that operation of the group, which never came and what they did last.
LEVIN_API std::string explain(const FlightRecord& record, const std::vector<int64_t>& members,
                              const std::string& group, int64_t number);

}  // namespace levin::comm
