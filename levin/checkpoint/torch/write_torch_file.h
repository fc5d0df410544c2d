#pragma once
// Writes a file of torch.save: a zip archive of a pickle and storages.
// Not for users, who call save_weights.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "levin/base/state.h"
#include "levin/files/file_writer.h"

namespace levin::detail {

/// Writes the state as an OrderedDict of tensors, in the order of its names. torch.load opens it
/// with weights_only=True and with mmap=True: records are stored uncompressed, storages at
/// multiples of 64 bytes. Equal states give equal bytes. One storage at a time is copied to the
/// CPU. Synced when it returns. Throws the errors of stored_tensors before the file is made, and
/// Error "files.write".
files::FileDigest write_torch_file(const std::filesystem::path& path, const State& tensors);

/// The bytes of torch.save((tuple(arguments), {})): a call's arguments by position and by name. Throws what
/// stored_tensors throws.
std::string torch_file_of_arguments(const std::vector<at::Tensor>& arguments);

}  // namespace levin::detail
