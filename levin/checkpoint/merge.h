#pragma once
// merge_checkpoints: one checkpoint of what several hosts have written of it (save_on_each_node).

#include <filesystem>
#include <vector>

#include "levin/base/export.h"
#include "levin/checkpoint/checkpoint.h"

namespace levin {

/// Writes to `folder` the checkpoint whose parts are in these folders, in any order: the bytes that
/// its ranks would have written to a disk of all hosts. Every byte that it takes is checked. Throws
/// Error "checkpoint.part" for parts of different saves, a folder that is no part, and bytes that
/// none of them has, and what load_checkpoint and save_checkpoint throw.
LEVIN_API void merge_checkpoints(const std::vector<std::filesystem::path>& parts,
                                 const std::filesystem::path& folder,
                                 const SaveCheckpointOptions& options = {});

}  // namespace levin
