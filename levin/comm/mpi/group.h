#pragma once
// Group: the collectives of ranks that mpirun started, by non-blocking MPI calls that are polled
// against a deadline. Sums are levin's own: in rank order, which MPI does not promise, and of the
// half types, which it does not know.
//
//   Group group(library(), ranks, std::chrono::minutes(30));

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "levin/comm/collectives.h"
#include "levin/comm/failure.h"
#include "levin/comm/mpi/library.h"

namespace levin::comm::mpi {

/// After "comm.timeout" a late message may still write to the tensor: the process should end.
class Group final : public Collectives {
 public:
  /// Of these ranks of the world. Throws "comm.timeout" when one of them does not come, and
  /// "comm.mismatch" when one calls it with other ranks.
  Group(Library& library, std::span<const int> ranks, std::chrono::milliseconds timeout);
  ~Group() override;

  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void barrier() override;
  void all_reduce(Elements data, Reduction reduction) override;
  void reduce(Elements data, int64_t root, Reduction reduction) override;
  void broadcast(Elements data, int64_t root) override;
  void all_gather(Elements result, Elements part) override;
  void all_gather(std::span<const Elements> results, Elements part) override;
  void gather(std::span<const Elements> results, Elements part, int64_t root) override;
  void scatter(Elements result, std::span<const Elements> parts, int64_t root) override;
  void reduce_scatter(Elements result, Elements data, Reduction reduction) override;
  void all_to_all(std::span<const Elements> results, std::span<const Elements> parts) override;
  void send(Elements data, int64_t to, int64_t tag) override;
  void receive(Elements data, int64_t from, int64_t tag) override;

 private:
  /// Bytes to or from a rank.
  struct Letter {
    int64_t rank = 0;
    Elements elements;
  };
  using Sources = std::vector<const std::byte*>;

  /// Returns when all ranks of a group have come to make it.
  void gather_members(const Announcement& operation, std::span<const int> ranks);
  /// Runs an operation; what it throws closes the group.
  template <class Body>
  void run(const Body& body);
  template <class Call>
  std::invoke_result_t<Call, Module&> ask(const Announcement& operation, const Call& call);
  void wait(const Announcement& operation, std::span<Request> requests);

  /// Compares what all are about to do. A tensor that is small comes along: everybody's then, else
  /// nothing.
  Sources meet(const Announcement& announcement, Elements mine = {});
  /// Everybody's part, this rank's being in its place already.
  void gather_in_place(const Announcement& operation, std::byte* data,
                       const std::vector<int>& counts);
  Sources gather_small(const Announcement& operation, Elements mine);
  /// meet() and gather_small() where these pay, else nothing.
  Sources meet_small(const Announcement& announcement, Elements mine);

  void exchange(const Announcement& operation, std::span<const Letter> receives,
                std::span<const Letter> sends, int tag);
  /// Everybody's elements of this rank's share; parts[i] is what this rank has of rank i's.
  Sources exchange_parts(const Announcement& operation, std::span<const Elements> parts);
  std::vector<Letter> letters(std::span<const Elements> elements) const;

  Library& library_;
  std::atomic<std::chrono::milliseconds> timeout_;
  Handle group_ = 0;
  int64_t rank_ = 0;
  int64_t size_ = 1;
  std::atomic<int64_t> number_ = 0;  ///< collectives begun
  std::vector<std::byte> scratch_;
  Failure failure_;
};

}  // namespace levin::comm::mpi
