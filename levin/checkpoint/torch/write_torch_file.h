#pragma once
// Writes a file of torch.save: a zip archive of a pickle and storages.
// Not for users, who call save_weights.

#include <filesystem>

#include "levin/base/state.h"
#include "levin/files/file_writer.h"

namespace levin::detail {

/// The state as an OrderedDict of tensors, in the order of its names, which torch.load opens with
/// weights_only=True and with mmap=True: records are stored as they are, storages at multiples of 64 bytes.
/// The same state is the same bytes. One storage at a time is copied to the CPU. Synced when it returns.
/// Throws what stored_tensors throws, before the file is made, and Error "files.write".
files::FileDigest write_torch_file(const std::filesystem::path& file, const State& tensors);

}  // namespace levin::detail
