#pragma once
// AsyncSaves: writes the checkpoints of a run in the background, one at a time. A save copies its
// rank's part into memory of its own, and a thread writes it while training goes on. Between two
// later steps, when every rank's part is on the disk, the checkpoint gets its name.
//
//   AsyncSaves saves(world);
//   saves.start("runs/step=100", checkpoint, {}, [](std::exception_ptr failure) { ... });
//   ... saves.poll(); ...                              // between steps
//   saves.finish();                                    // at the end

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>

#include "levin/base/export.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/comm/process_group.h"

namespace levin {

class CheckpointSave;

namespace detail {
struct SaveBuffer;
}  // namespace detail

/// All ranks of the group call the same functions in the same order; without a save under way they
/// ask nobody. If a rank dies, the last complete checkpoint remains.
class LEVIN_API AsyncSaves {
 public:
  explicit AsyncSaves(comm::ProcessGroup group);
  /// Waits for the thread; a save that has not ended is given up.
  ~AsyncSaves();
  AsyncSaves(const AsyncSaves&) = delete;
  AsyncSaves& operator=(const AsyncSaves&) = delete;

  /// Ends the one before, and begins this one. Throws what CheckpointSave throws before it copies.
  void start(const std::filesystem::path& folder, const Checkpoint& checkpoint,
             const SaveCheckpointOptions& options, SaveThen then = {});
  bool is_under_way() const { return save_ != nullptr; }
  /// Ends the save where all ranks have written their parts. Over a network they ask each other only
  /// now and then.
  void poll();
  /// Waits for it.
  void finish();
  /// Gives it up, on this rank alone: for one that leaves the others.
  void drop();

 private:
  comm::ProcessGroup group_;
  std::unique_ptr<detail::SaveBuffer> buffer_;  // outlives the save
  std::unique_ptr<CheckpointSave> save_;
  SaveThen then_;
  int64_t polls_unasked_ = 0;
};

}  // namespace levin
