#pragma once
// CheckpointSave: a checkpoint that all ranks of a group write, at once or behind training. Rank 0
// makes the folder, the files at their full sizes and their headers; every rank writes its part at
// its place. Tensors that all ranks hold are dealt out in pieces of at most 16 MiB cut at fixed
// places; each rank writes its own shards. So the files have the same bytes for any number of
// ranks. The folder gets its name once every rank has reported that its part is synced.
//
//   CheckpointSave save("runs/step=100", checkpoint, world);
//   save.finish();
//
//   CheckpointSave later("runs/step=200", checkpoint, world, {}, &buffer);   // behind training
//   ... if (!world.any(!later.is_written())) later.finish();

#include <cstdint>
#include <filesystem>
#include <memory>

#include "levin/base/export.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/comm/process_group.h"

namespace levin {

namespace detail {
struct SaveBuffer;
}  // namespace detail

/// Every rank of the group calls the constructor and finish(), in the same order as other
/// collectives. An error on one rank is thrown on all of them, with the same text, which names the
/// rank; the folder is then as it was before. Throws the errors of save_checkpoint(), and Error
/// "checkpoint.ranks" for a tensor that is a shard on one rank and not on another. If ranks hold
/// different values of a tensor, or of the training state's tree, rank 0's are saved.
class LEVIN_API CheckpointSave {
 public:
  /// With a buffer, this rank's part is copied there, and a thread of its own writes it: the
  /// checkpoint has the present values, even if the tensors change. The buffer stays with the save
  /// until it ends.
  CheckpointSave(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                 comm::ProcessGroup group, const SaveCheckpointOptions& options = {},
                 detail::SaveBuffer* buffer = nullptr);
  /// Waits for the thread; without finish() the save is given up.
  ~CheckpointSave();
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  /// Returns whether this rank's own part is written, so that finish() would not wait for it.
  bool is_written() const;
  /// Waits for all ranks' parts and gives the folder its name.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levin
