#pragma once
// Swapper: brings ranges of a scratch file into memory and back, in the background, in the order in which they will
// be needed, under a limit in bytes. Follows DeepSpeed's pipelined optimizer swapper (ZeRO-Infinity, Rajbhandari et
// al. 2021, section 5.2). Not for users.
//
//   Swapper swapper(file, 256 << 20);
//   swapper.read_ahead(first);
//   for (const auto& [ranges, next] : units) {
//     Swapper::Lease lease = swapper.lease(ranges);      // in memory until it ends
//     swapper.read_ahead(next);
//     update(lease.bytes(0));
//     lease.write_back();
//   }
//   swapper.wait();                                      // the file has all of it

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "levin/base/export.h"
#include "levin/files/scratch/scratch_file.h"

namespace levin::files {

/// Bytes [begin, end) of a scratch file.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

/// Ranges that are in memory together.
using ByteRanges = std::vector<ByteRange>;

/// A thread of its own reads, and another one writes. An error there is thrown by each later call: what was to be written is
/// lost. Functions that say nothing else throw Error "files.scratch" for such an error.
class LEVIN_API Swapper {
 public:
  class Lease;

  /// memory_bytes: all that is read ahead, leased and not yet written back; taken at the first use.
  Swapper(std::shared_ptr<ScratchFile> file, int64_t memory_bytes);
  /// Waits for what is under way. Leases must have ended.
  ~Swapper();
  Swapper(const Swapper&) = delete;
  Swapper& operator=(const Swapper&) = delete;

  /// Reads the ranges in the background, after those of earlier calls, as soon as there is memory. The same ranges
  /// a second time are not read again, until bytes of theirs are written back.
  void read_ahead(const ByteRanges& ranges);
  /// Waits until the ranges are in memory, where they stay until the lease ends. Ranges that were read ahead give
  /// way to others if the memory is needed. Throws Error "files.scratch.memory" if the ranges are larger than the
  /// memory, or than what other leases leave.
  Lease lease(const ByteRanges& ranges);
  /// Forgets what was read ahead: the file's bytes have been changed by other means.
  void forget();
  /// Waits until all that was written back is in the file, for its readers.
  void wait();

  int64_t memory_bytes() const;
  const std::shared_ptr<ScratchFile>& file() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Memory that holds ranges of the file.
class LEVIN_API Swapper::Lease {
 public:
  /// Gives the memory back, and forgets what was written to it.
  ~Lease();
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&&) = delete;

  /// The bytes of one of the ranges, at a multiple of 64.
  std::span<std::byte> bytes(size_t range) const;
  /// Ends the lease; the bytes are written to the file in the background.
  void write_back();

 private:
  friend class Swapper;
  struct Entry;
  Lease(Swapper::Impl& swapper, std::shared_ptr<Entry> entry);
  Swapper::Impl* swapper_;
  std::shared_ptr<Entry> entry_;
};

}  // namespace levin::files
