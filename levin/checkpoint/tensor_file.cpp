#include "levin/checkpoint/tensor_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "levin/base/check.h"
#include "levin/files/safetensors.h"
#include "levin/files/safetensors_dtype.h"

namespace levin {
namespace {

std::string_view type_name(const std::string& tensor, at::ScalarType type) {
  const auto name = files::safetensors_dtype(type);
  LEVIN_CHECK(name.has_value(), "checkpoint.dtype",
              "{} has dtype {}, which safetensors cannot hold; convert it first", tensor,
              c10::toString(type));
  return *name;
}

at::ScalarType scalar_type(const std::filesystem::path& file, std::string_view type) {
  const auto dtype = files::dtype_of_safetensors(type);
  LEVIN_CHECK(dtype.has_value(), "checkpoint.dtype",
              "{} holds a tensor of type {}, which LibTorch lacks", file.string(), type);
  return *dtype;
}

/// In memory as safetensors wants it: on the CPU, row-major, each element its own value.
at::Tensor plain(const std::string& name, const at::Tensor& tensor) {
  const bool dense = tensor.defined() && tensor.layout() == at::kStrided;
  LEVIN_CHECK(dense, "checkpoint.dtype",
              "{} is {}, which safetensors cannot hold; convert it first or leave it out", name,
              tensor.defined() ? "a sparse tensor" : "an undefined tensor");
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

at::Tensor tensor_of(const files::TensorEntry& entry, at::ScalarType type,
                     const std::shared_ptr<files::SafetensorsFile>& file) {
  const auto options = at::TensorOptions(type);
  const auto address = reinterpret_cast<std::uintptr_t>(entry.data.data());
  if (entry.data.empty() || address % at::elementSize(type) != 0) {
    at::Tensor copy = at::empty(entry.shape, options);
    if (!entry.data.empty()) {
      std::memcpy(copy.mutable_data_ptr(), entry.data.data(), entry.data.size());
    }
    return copy;
  }
  // The map is read-only; what is read here is copied from, never written to.
  auto* data = const_cast<std::byte*>(entry.data.data());
  return at::from_blob(data, entry.shape, [file](void*) {}, options);
}

}  // namespace

files::FileDigest write_tensors(const std::filesystem::path& file,
                                const std::map<std::string, at::Tensor>& tensors) {
  std::vector<at::Tensor> kept;
  std::vector<files::TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    kept.push_back(plain(name, tensor));
    const at::Tensor& bytes = kept.back();
    entries.push_back({.name = name,
                       .dtype = std::string(type_name(name, bytes.scalar_type())),
                       .shape = bytes.sizes().vec(),
                       .data = {static_cast<const std::byte*>(bytes.const_data_ptr()),
                                static_cast<size_t>(bytes.nbytes())}});
  }
  return files::write_safetensors(file, entries, {{"format", "pt"}});
}

files::FileDigest write_tensors(const std::filesystem::path& file, const State& tensors) {
  std::map<std::string, at::Tensor> named;
  for (const auto& [name, value] : tensors.values()) named[name] = tensors.tensor(name);
  return write_tensors(file, named);
}

std::map<std::string, at::Tensor> read_tensors(const std::filesystem::path& file) {
  const auto opened = std::make_shared<files::SafetensorsFile>(file);
  std::map<std::string, at::Tensor> tensors;
  for (const files::TensorEntry& entry : opened->entries()) {
    tensors[entry.name] = tensor_of(entry, scalar_type(file, entry.dtype), opened);
  }
  return tensors;
}

}  // namespace levin
