#include "levin/comm/mpi/mpi.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "levin/base/check.h"
#include "levin/comm/collectives/queued_backend.h"
#include "levin/comm/messages/collectives.h"
#include "levin/comm/mpi/transport.h"

namespace levin::comm {
namespace {

/// Returns the ranks as MPI counts them; all ranks when none are named.
std::vector<int> mpi_ranks(const std::vector<int64_t>& ranks, const mpi::Place& place) {
  for (const int64_t rank : ranks) {
    LEVIN_CHECK(
        rank >= 0 && rank < place.size && std::ranges::count(ranks, rank) == 1, "comm.mpi.rank",
        "got rank {} in a group, wanted each rank once and only the {} ranks that mpirun started",
        rank, place.size);
  }
  std::vector<int> all(ranks.begin(), ranks.end());
  for (int rank = 0; ranks.empty() && rank < place.size; ++rank) all.push_back(rank);
  return all;
}

void check_place(int64_t rank, int64_t size, const std::vector<int64_t>& ranks,
                 const mpi::Place& place) {
  const int64_t wanted_size = ranks.empty() ? place.size : std::ssize(ranks);
  const bool is_known = rank >= 0 && rank < wanted_size && size == wanted_size;
  const int64_t number = is_known && !ranks.empty() ? ranks[static_cast<size_t>(rank)] : rank;
  LEVIN_CHECK(is_known && number == place.rank, "comm.mpi.rank",
              "got rank {} of {}, but mpirun started this process as rank {} of {}; take rank and "
              "size from mpirun's variables",
              rank, size, place.rank, place.size);
}

}  // namespace

std::vector<std::string> mpi_modules() { return mpi::modules(); }

std::unique_ptr<Transport> connect_by_mpi(int64_t rank, int64_t size,
                                          std::chrono::milliseconds timeout,
                                          const std::vector<int64_t>& global_ranks) {
  mpi::Library& library = mpi::library();
  const std::vector<int> ranks = mpi_ranks(global_ranks, library.place);
  check_place(rank, size, global_ranks, library.place);
  return mpi::make_mpi_transport(library, ranks, timeout);
}

c10::intrusive_ptr<c10d::Backend> make_mpi_backend(int64_t rank, int64_t size,
                                                   std::chrono::milliseconds timeout,
                                                   const std::vector<int64_t>& global_ranks) {
  return c10::make_intrusive<QueuedBackend>(
      "mpi", rank, size,
      make_message_collectives(connect_by_mpi(rank, size, timeout, global_ranks), Carrier::kMpi));
}

}  // namespace levin::comm
