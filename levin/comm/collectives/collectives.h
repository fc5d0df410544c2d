#pragma once
// Collectives: what ranks do together to bytes in memory, one call after the other, each returning
// when it is done. Between QueuedBackend, which gives it c10d's form, and what carries the bytes.
//
//   shm::Group group(rank, size, board, {});
//   group.all_reduce({bytes, at::kFloat, count}, Reduction::kSum);

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "levin/comm/collectives/announcement.h"
#include "levin/comm/collectives/chunks.h"
#include "levin/comm/collectives/reduce.h"

namespace levin::comm {

/// A tensor's memory: contiguous elements of one type.
struct Elements {
  std::byte* data = nullptr;
  at::ScalarType type = at::kByte;
  int64_t count = 0;

  int64_t width() const { return static_cast<int64_t>(c10::elementSize(type)); }
  int64_t bytes() const { return count * width(); }
  Elements part(int64_t begin, int64_t length) const {
    return {data + begin * width(), type, length};
  }
};

inline void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

/// One behind the other, as many elements as are counted.
inline std::vector<Elements> cut(Elements whole, Counts counts) {
  std::vector<Elements> parts;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    parts.push_back(whole.part(begin, count));
    begin += count;
  }
  return parts;
}

inline Announcement announce(std::string_view name, Elements data, int64_t argument = 0,
                             int64_t place = 0) {
  return announce(name, c10::toString(data.type), data.count, argument, place);
}

inline Announcement announce_parts(std::string_view name, Elements data, Counts counts,
                                   int64_t argument = 0, int64_t place = 0) {
  return announce_parts(name, c10::toString(data.type), counts, argument, place);
}

/// Packs the arguments that ranks must agree on beside name, type and count.
inline int64_t argument_of(Reduction reduction, int64_t root = 0) {
  return root << 8 | static_cast<int64_t>(reduction);
}

/// For one thread at a time, except for send and receive. Every rank calls the same functions in
/// the same order; a difference is "comm.mismatch" on all of them. After a throw the group can do
/// no more: "comm.closed".
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  /// Returns when all have come to it with the same.
  virtual void meet(const Announcement& what) = 0;
  void barrier() { meet(announce("barrier", "", 0)); }
  virtual void all_reduce(Elements data, Reduction reduction) = 0;
  /// Tensors that are reduced one after another are joined up to so many bytes, and copied for that
  /// if they do not lie side by side: a call costs more than the copies.
  virtual int64_t bytes_to_join() const { return int64_t{16} << 10; }
  /// The root's data alone becomes the result.
  virtual void reduce(Elements data, int64_t root, Reduction reduction) = 0;
  virtual void broadcast(Elements data, int64_t root) = 0;
  /// result holds rank i's part of counts[i] elements, which may be none, one behind the other. All
  /// ranks name the same counts.
  virtual void all_gather(Elements result, Elements part, Counts counts) = 0;
  /// results[i] is rank i's part; all are of one length, and so they are in scatter.
  virtual void gather(std::span<const Elements> results, Elements part, int64_t root) = 0;
  virtual void scatter(Elements result, std::span<const Elements> parts, int64_t root) = 0;
  /// data holds a part of counts[i] elements for rank i, as in all_gather.
  virtual void reduce_scatter(Elements result, Elements data, Counts counts,
                              Reduction reduction) = 0;
  /// parts[i] goes to rank i, which may be of any length; results[i] comes from rank i.
  virtual void all_to_all(std::span<const Elements> results, std::span<const Elements> parts) = 0;

  /// Between two ranks, in the order of their calls: the n-th send to a rank is its n-th receive
  /// from this one. One thread at a time for each peer and direction.
  virtual void send(Elements data, int64_t to, int64_t tag) = 0;
  virtual void receive(Elements data, int64_t from, int64_t tag) = 0;
};

}  // namespace levin::comm
