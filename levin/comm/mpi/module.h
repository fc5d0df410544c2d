#pragma once
// Module: what levin asks of an MPI library, without mpi.h, whose handles and constants are others
// in every MPI. module.cpp is compiled once for each MPI, into a small library of its own that
// library.cpp loads; so liblevin needs no MPI, neither to be built nor to run.
//
// Nothing here names LibTorch or liblevin: the module is linked to MPI alone.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace levin::comm::mpi {

/// An MPI_Comm or an MPI_Request, whichever type that is.
using Handle = uint64_t;

struct Place {
  int rank = 0;
  int size = 1;
};

/// Something that was started. Stays where it is until it is done.
struct Request {
  Handle handle = 0;
  bool receives = false;
  /// Bytes that a finished receive got; kTooLong when more came than there was room for.
  int bytes = 0;

  static constexpr int kTooLong = -1;
};

/// Throws std::runtime_error with the name of MPI's function and its own words. One call at a time:
/// MPI_THREAD_SERIALIZED.
class Module {
 public:
  virtual ~Module() = default;

  /// MPI_Init, unless it was called, and this process' place among all. The process' end is
  /// MPI_Finalize, or MPI_Abort when it exits with a code other than 0 or after fail().
  virtual Place start() = 0;
  virtual bool allows_threads() const = 0;
  /// The ranks are out of step: MPI_Finalize would wait for ever.
  virtual void fail() = 0;

  /// The group of all processes that mpirun started.
  virtual Handle world() = 0;
  /// Makes a group of these ranks of the world. All of them call it; it waits for them for ever.
  virtual Handle make_group(std::span<const int> ranks) = 0;
  virtual void free_group(Handle group) = 0;

  /// Rank i's part is `counts[i]` bytes from `places[i]` on; this rank's is there already.
  virtual Request all_gather(std::byte* data, const int* counts, const int* places,
                             Handle group) = 0;
  virtual Request broadcast(std::byte* data, int bytes, int root, Handle group) = 0;
  virtual Request send(const std::byte* data, int bytes, int to, int tag, Handle group) = 0;
  virtual Request receive(std::byte* data, int bytes, int from, int tag, Handle group) = 0;
  /// Returns whether all requests are done.
  virtual bool test(std::span<Request> requests) = 0;
};

/// The name of the one function that a module exports, and its type.
inline constexpr const char* kFactory = "levin_mpi_module";
using Factory = Module*();

}  // namespace levin::comm::mpi
