#pragma once
// Tensors to and from safetensors files.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/files/file_writer.h"
#include "levin/files/safetensors/layout.h"

namespace levin {

namespace files {
struct TensorEntry;
class SafetensorsFile;
}  // namespace files

namespace detail {

/// A tensor of a state, or the whole that it is a part of, as a file names it. Throws Error
/// "checkpoint.dtype" as write_tensors does, and "base.state.type" for another value.
files::TensorDescription description_of(const State& state, const std::string& name);

/// A tensor of a state that is all of it, as such or as the one slice there is. Throws Error
/// "checkpoint.slice" for a part, and "base.state.type" for another value.
at::Tensor whole_tensor(const State& state, const std::string& name);

/// On the CPU, row-major, each element its own value: as a file holds it.
at::Tensor plain(const at::Tensor& tensor);

/// Returns a view of the bytes, which keeps the file's map alive, or a copy of bytes that lie
/// unaligned. Throws Error "checkpoint.dtype" for a type that LibTorch lacks.
at::Tensor tensor_of(const files::TensorEntry& entry, const files::SafetensorsFile& file,
                     const std::filesystem::path& path);

}  // namespace detail

/// Throws Error "checkpoint.dtype" for a dtype that safetensors has no name for, and for tensors
/// that are sparse or undefined.
files::FileDigest write_tensors(const std::filesystem::path& file,
                                const std::map<std::string, at::Tensor>& tensors);
/// The state has tensors alone; parts of tensors are Error "checkpoint.slice".
LEVIN_API files::FileDigest write_tensors(const std::filesystem::path& file, const State& tensors);

/// Returns CPU tensors in the file's memory map, which lives as long as any of them; a tensor that
/// lies unaligned there is copied. Tensors of a type that LibTorch lacks (F6) are left out with a
/// warning that names them; F4 comes as Float4_e2m1fn_x2, with half the last dimension.
std::map<std::string, at::Tensor> read_tensors(const std::filesystem::path& file);

}  // namespace levin
