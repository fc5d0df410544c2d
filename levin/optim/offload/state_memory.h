#pragma once
// StateMemory: the place of optimizer state under --offload, and the memory on the device for the part of it that is
// being updated. The place is a file on a disk (on the CPU), or pinned memory of the host (on a GPU). Not for users.
//
//   const int64_t begin = memory->take(bytes);                        // zeros
//   memory->read_ahead(first);
//   for (const auto& [ranges, next] : portions) {
//     const auto lease = memory->lease(ranges);                       // on the device until it ends
//     memory->read_ahead(next);
//     update(lease->bytes(0));
//     lease->write_back();
//   }
//   memory->wait();                                                   // the place has all of it

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "levin/base/export.h"
#include "levin/files/scratch/scratch_file.h"
#include "levin/files/scratch/swapper.h"
#include "levin/optim/offload/portions.h"

namespace levin::optim {

/// The optimizers of a process share one.
class LEVIN_API StateMemory {
 public:
  /// Memory on the device that holds ranges of the state. Its end gives the memory back, and forgets what was written
  /// to it.
  class LEVIN_API Lease {
   public:
    virtual ~Lease();
    /// Returns the bytes of one of the ranges, kByte [size]; the first lies at a multiple of 64.
    virtual at::Tensor bytes(size_t range) const = 0;
    /// Ends the lease; the bytes are written to their place in the background.
    virtual void write_back() = 0;
  };

  virtual ~StateMemory();
  StateMemory(const StateMemory&) = delete;
  StateMemory& operator=(const StateMemory&) = delete;

  /// Returns the device on which state is updated.
  virtual at::Device device() const = 0;
  /// Returns the limit in bytes for state on the device.
  virtual int64_t memory_bytes() const = 0;
  /// Bytes that are updated at once: the rest of the memory is for what is read ahead and written back meanwhile.
  int64_t portion_bytes() const { return memory_bytes() / 4; }
  /// Returns the bytes taken.
  virtual int64_t size() const = 0;

  /// Returns the first of that many bytes, zeros, at a multiple of 64. Throws Error "files.scratch" for a full disk,
  /// "optim.offload" for a host without so much memory.
  virtual int64_t take(int64_t bytes) = 0;
  /// Returns the tensor at that place, on the CPU. It shares memory with the place where that is possible.
  virtual at::Tensor at_rest(const SlotPlace& place) const = 0;
  /// Writes values of any device, or one number, there. Nothing may be under way: forget() comes before.
  void copy_into(const SlotPlace& place, const at::Tensor& values);
  void fill(const SlotPlace& place, double value);

  /// Brings the ranges to the device in the background, if there is memory for them.
  virtual void read_ahead(const files::ByteRanges& ranges) = 0;
  /// Returns memory that holds the ranges. Work that is given to the device afterwards sees them. Throws Error
  /// "files.scratch.memory" for ranges that are larger than the memory, or than what other leases leave.
  virtual std::unique_ptr<Lease> lease(const files::ByteRanges& ranges) = 0;
  /// Forgets what was read ahead, and waits until nothing is under way.
  virtual void forget() = 0;
  /// Waits until all that was written back is in its place, for its readers.
  virtual void wait() = 0;

  /// Returns the file; nullptr for state in memory.
  virtual std::shared_ptr<files::ScratchFile> file() const { return nullptr; }

 protected:
  /// Called with parts of a place, and with a function that returns the same part of another tensor of its sizes.
  using Write = std::function<void(const at::Tensor& part,
                                   const std::function<at::Tensor(const at::Tensor&)>& same)>;

  StateMemory() = default;
  virtual void write(const SlotPlace& place, const Write& write) = 0;
};

/// Returns state in the file, which is updated on the CPU. memory_bytes: the limit for state in memory.
LEVIN_API std::shared_ptr<StateMemory> make_file_memory(std::shared_ptr<files::ScratchFile> file,
                                                        int64_t memory_bytes);

/// Returns state in memory of the host, which is updated on the device. For a GPU the memory is pinned, and copies run
/// beside the update on streams of their own. memory_bytes: the limit for state on the device.
LEVIN_API std::shared_ptr<StateMemory> make_host_memory(at::Device device, int64_t memory_bytes);

}  // namespace levin::optim
