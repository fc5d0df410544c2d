#pragma once
// PeerMemory: reads other processes' own memory where the system lets one (process_vm_readv), so
// that tensors outside shared memory move by one copy and not two.
//
//   PeerMemory peers; ... each tells the others peers.card() ...; bool can = peers.can_read(card);

#include <cstddef>
#include <cstdint>
#include <vector>

namespace levin::comm::shm {

/// How a process is known to the others, and where they may try to read.
struct PeerCard {
  int64_t process = 0;
  uint64_t address = 0;
  uint64_t word = 0;  ///< what stands there
};

class PeerMemory {
 public:
  /// A word that no other process has, for them to find.
  PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  PeerCard card() const;
  /// Whether that process is what its card says, and may be read. Not where a security module
  /// keeps processes apart, or in another namespace of processes.
  static bool can_read(const PeerCard& card);
  /// Throws Error "comm.peer" when the memory cannot be read (any more).
  static void read(int64_t process, uint64_t address, std::byte* to, int64_t bytes);

 private:
  uint64_t word_;
};

}  // namespace levin::comm::shm
