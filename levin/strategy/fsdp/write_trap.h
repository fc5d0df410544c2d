#pragma once
// WriteTrap: names the parameter that a write has hit in read-only memory, before the process ends.
// It is for memory that ranks share, in passes whose operators LazyGather does not see.
//
//   WriteTrap trap;
//   trap.add(weight.const_data_ptr(), weight.nbytes(), "fc.weight of unit fc");

#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <string>

namespace levin::fsdp {

/// While there is one SIGSEGV is handled here, then by whatever handled it before.
class WriteTrap {
 public:
  explicit WriteTrap(int64_t rank);
  ~WriteTrap();
  WriteTrap(const WriteTrap&) = delete;
  WriteTrap& operator=(const WriteTrap&) = delete;

  /// what: text for the message, "fc.weight of unit fc".
  void add(const void* begin, size_t bytes, const std::string& what);

 private:
  friend struct Trapping;
  struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    std::string text;
  };
  int64_t rank_;
  std::forward_list<Range> ranges_;
};

}  // namespace levin::fsdp
