#pragma once
// Group: the collectives of the ranks of one machine, in shared memory, one after the other.
// ShmBackend gives them c10d's form.
//
//   Group group(rank, size, board, {});
//   group.all_reduce(bytes, at::kFloat, count, Reduction::kSum);
//
// Two ways: tensors in memory from allocate() are read where they lie; all others pass through
// staging buffers, a chunk a round.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/collectives/collectives.h"
#include "levin/comm/collectives/group_failure.h"
#include "levin/comm/shm/links.h"
#include "levin/comm/shm/mailboxes.h"
#include "levin/comm/shm/rounds.h"
#include "levin/comm/shm/shared_memory.h"

namespace levin::comm::shm {

struct GroupOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  int64_t chunk_bytes = 256 << 10;  ///< size of a staging buffer; two of them fit a core's second
                                    ///< cache
};

class LEVIN_API Group final : public Collectives {
 public:
  Group(int64_t rank, int64_t size, const Board& board, const GroupOptions& options);
  ~Group() override;

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }

  void set_timeout(std::chrono::milliseconds timeout) override;
  void meet(const Announcement& what) override;
  void all_reduce(Elements data, Reduction reduction) override;
  void reduce(Elements data, int64_t root, Reduction reduction) override;
  void broadcast(Elements data, int64_t root) override;
  void all_gather(Elements result, Elements part, Counts counts) override;
  void gather(std::span<const Elements> results, Elements part, int64_t root) override;
  void scatter(Elements result, std::span<const Elements> parts, int64_t root) override;
  void reduce_scatter(Elements result, Elements data, Counts counts, Reduction reduction) override;
  void all_to_all(std::span<const Elements> results, std::span<const Elements> parts) override;
  void send(Elements data, int64_t to, int64_t tag) override;
  void receive(Elements data, int64_t from, int64_t tag) override;

  /// Memory of this rank that the others read where it lies. All ranks call it with the same size;
  /// each may let go of its part when it likes.
  std::shared_ptr<std::byte> allocate(int64_t bytes);

  /// Zeros that are the same memory for all ranks, counts[i] elements of rank i one behind the
  /// other. All ranks call it with the same counts; it is gone with the last who looks at it.
  SharedMemory share(at::ScalarType type, Counts counts);

 private:
  struct Arena;
  /// The staging buffers that a round filled.
  struct Buffers {
    const Group& group;
    size_t parity;
    const std::byte* operator[](int64_t rank) const { return group.staging(rank, parity); }
  };
  using Write = std::function<void(int64_t round, std::byte* mine)>;
  using Read = std::function<void(int64_t round, const Buffers& theirs)>;

  std::byte* staging(int64_t rank, size_t parity) const;
  /// Takes at least one round. A round reads the data that was written in it.
  void exchange(const Announcement& announcement, int64_t rounds, const Write& write,
                const Read& read);
  void turn(int64_t rounds, const Write& write, const Read& read);
  void close(std::string_view why);
  /// Elements that one round carries in parts of each rank.
  int64_t most(Elements elements, int64_t parts = 1) const;

  /// The address of each rank's elements in shared memory.
  using Sources = std::vector<const std::byte*>;
  /// Returns the place of elements in shared memory; 0 when they lie elsewhere.
  int64_t place_of(Elements elements) const;
  /// Meets the other ranks and returns where their elements lie; empty if some lie elsewhere. A
  /// rank without elements has no place, and takes part too.
  Sources meet_in_place(const Announcement& announcement);
  /// Returns when all have read what they wanted.
  void part(std::string_view name);

  /// An exception of the body closes the group.
  void run(const std::function<void()>& body);
  /// longest: elements of the longest part.
  void gather_to(std::span<const Elements> results, Elements mine, int64_t longest,
                 const Announcement& announcement);
  int64_t longest_part(std::span<const Elements> results, std::span<const Elements> parts);
  void all_reduce_in_place(Elements data, const Sources& sources, Reduction reduction);
  void all_reduce_by_all(Elements data, Reduction reduction);
  void all_reduce_by_parts(Elements data, Reduction reduction);

  int64_t rank_;
  int64_t size_;
  GroupOptions options_;
  Links links_;
  Segment segment_;  ///< the rounds' lines, then two staging buffers of each rank
  Rounds rounds_;
  std::vector<std::shared_ptr<Arena>> arenas_;
  GroupFailure failure_;
  Mailboxes mailboxes_;
};

}  // namespace levin::comm::shm
