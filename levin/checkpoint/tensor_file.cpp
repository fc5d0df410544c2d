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

void check_dense(const std::string& name, const at::Tensor& tensor) {
  const bool dense = tensor.defined() && tensor.layout() == at::kStrided;
  LEVIN_CHECK(dense, "checkpoint.dtype",
              "{} is {}, which safetensors cannot hold; convert it first or leave it out", name,
              tensor.defined() ? "a sparse tensor" : "an undefined tensor");
}

}  // namespace

namespace detail {

files::TensorDescription description_of(const State& state, const std::string& name) {
  const auto found = state.values().find(name);
  const auto* slice =
      found == state.values().end() ? nullptr : std::get_if<TensorSlice>(&found->second);
  const at::Tensor& tensor = slice != nullptr ? slice->local : state.tensor(name);
  check_dense(name, tensor);
  return {name, std::string(type_name(name, tensor.scalar_type())),
          slice != nullptr ? slice->sizes : tensor.sizes().vec()};
}

at::Tensor plain(const at::Tensor& tensor) {
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

at::Tensor tensor_of(const files::TensorEntry& entry, const files::SafetensorsFile& file,
                     const std::filesystem::path& path) {
  const at::ScalarType type = scalar_type(path, entry.dtype);
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

}  // namespace detail

files::FileDigest write_tensors(const std::filesystem::path& file,
                                const std::map<std::string, at::Tensor>& tensors) {
  std::vector<at::Tensor> kept;
  std::vector<files::TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    check_dense(name, tensor);
    kept.push_back(detail::plain(tensor));
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

std::map<std::string, at::Tensor> read_tensors(const std::filesystem::path& path) {
  const files::SafetensorsFile file(path);
  std::map<std::string, at::Tensor> tensors;
  for (const files::TensorEntry& entry : file.entries()) {
    tensors[entry.name] = detail::tensor_of(entry, file, path);
  }
  return tensors;
}

}  // namespace levin
