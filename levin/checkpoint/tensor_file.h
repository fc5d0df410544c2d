#pragma once
// Tensors to and from safetensors files.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

#include "levin/base/state.h"
#include "levin/files/file_writer.h"

namespace levin {

/// Throws Error "checkpoint.dtype" for a dtype that safetensors has no name for, and for tensors
/// that are sparse or undefined.
files::FileDigest write_tensors(const std::filesystem::path& file,
                                const std::map<std::string, at::Tensor>& tensors);
/// Of a state of tensors alone.
files::FileDigest write_tensors(const std::filesystem::path& file, const State& tensors);

/// CPU tensors in the file's memory map, which lives as long as any of them; copies of those that
/// lie unaligned there.
std::map<std::string, at::Tensor> read_tensors(const std::filesystem::path& file);

}  // namespace levin
