#pragma once
// StateMemory: the place of optimizer state under --offload: a scratch file, and memory for the part of it that is
// being updated. Not for users.

#include <cstdint>
#include <memory>
#include <utility>

#include "levin/base/export.h"
#include "levin/files/scratch/scratch_file.h"
#include "levin/files/scratch/swapper.h"

namespace levin::optim {

/// The optimizers of a process share one.
class LEVIN_API StateMemory {
 public:
  /// memory_bytes: the limit for state in memory.
  StateMemory(std::shared_ptr<files::ScratchFile> file, int64_t memory_bytes)
      : file_(std::move(file)), swapper_(file_, memory_bytes) {}

  const std::shared_ptr<files::ScratchFile>& file() const { return file_; }
  files::Swapper& swapper() { return swapper_; }
  int64_t memory_bytes() const { return swapper_.memory_bytes(); }
  /// Bytes that are updated at once: the rest of the memory is for what is read ahead and written back meanwhile.
  int64_t portion_bytes() const { return swapper_.memory_bytes() / 4; }

 private:
  std::shared_ptr<files::ScratchFile> file_;
  files::Swapper swapper_;
};

}  // namespace levin::optim
