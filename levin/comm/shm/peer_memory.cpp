#include "levin/comm/shm/peer_memory.h"

#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "levin/base/check.h"

namespace levin::comm::shm {
namespace {

/// Of so many bytes, those that came; below 0 for an error.
int64_t read_some(int64_t process, uint64_t address, std::byte* to, int64_t bytes) {
  iovec local = {to, static_cast<size_t>(bytes)};
  iovec remote = {reinterpret_cast<void*>(address),  // NOLINT(performance-no-int-to-ptr)
                  static_cast<size_t>(bytes)};
  return ::process_vm_readv(static_cast<pid_t>(process), &local, 1, &remote, 1, 0);
}

}  // namespace

PeerMemory::PeerMemory() {
  std::random_device random;
  word_ = static_cast<uint64_t>(random()) << 32 | random();
}

PeerCard PeerMemory::card() const {
  return {::getpid(), reinterpret_cast<uint64_t>(&word_), word_};
}

bool PeerMemory::can_read(const PeerCard& card) {
  uint64_t word = 0;
  const int64_t came =
      read_some(card.process, card.address, reinterpret_cast<std::byte*>(&word), sizeof(word));
  return came == sizeof(word) && word == card.word;
}

void PeerMemory::read(int64_t process, uint64_t address, std::byte* to, int64_t bytes) {
  while (bytes > 0) {
    const int64_t came = read_some(process, address, to, bytes);
    LEVIN_CHECK(came > 0, "comm.peer", "the memory of process {} cannot be read: {}", process,
                came == 0 ? "nothing came" : std::strerror(errno));
    address += static_cast<uint64_t>(came);
    to += came;
    bytes -= came;
  }
}

}  // namespace levin::comm::shm
