#include "levin/checkpoint/tensor_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <array>
#include <memory>
#include <utility>

#include "levin/base/check.h"
#include "levin/files/safetensors.h"

namespace levin {
namespace {

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 12> kTypes = {{
    {"F64", at::kDouble},
    {"F32", at::kFloat},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
}};

std::string_view type_name(const std::string& tensor, at::ScalarType type) {
  for (const auto& [name, scalar_type] : kTypes) {
    if (scalar_type == type) return name;
  }
  LEVIN_FAIL("checkpoint.dtype", "{} has dtype {}, which safetensors cannot hold; convert it first",
             tensor, c10::toString(type));
}

at::ScalarType scalar_type(const std::filesystem::path& file, std::string_view type) {
  for (const auto& [name, scalar_type] : kTypes) {
    if (name == type) return scalar_type;
  }
  LEVIN_FAIL("checkpoint.dtype", "{} holds a tensor of type {}, which LibTorch lacks",
             file.string(), type);
}

}  // namespace

files::FileDigest write_tensors(const std::filesystem::path& file,
                                const std::map<std::string, at::Tensor>& tensors) {
  std::vector<at::Tensor> kept;
  std::vector<files::TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    kept.push_back(tensor.detach().cpu().contiguous());
    const at::Tensor& bytes = kept.back();
    entries.push_back({.name = name,
                       .dtype = std::string(type_name(name, bytes.scalar_type())),
                       .shape = bytes.sizes().vec(),
                       .data = {static_cast<const std::byte*>(bytes.const_data_ptr()),
                                static_cast<size_t>(bytes.nbytes())}});
  }
  return files::write_safetensors(file, entries, {{"format", "pt"}});
}

std::map<std::string, at::Tensor> read_tensors(const std::filesystem::path& file) {
  const auto opened = std::make_shared<files::SafetensorsFile>(file);
  std::map<std::string, at::Tensor> tensors;
  for (const files::TensorEntry& entry : opened->entries()) {
    const auto options = at::TensorOptions(scalar_type(file, entry.dtype));
    // The map is read-only; what is read here is copied from, never written to.
    auto* data = const_cast<std::byte*>(entry.data.data());
    tensors[entry.name] = entry.data.empty()
                              ? at::empty(entry.shape, options)
                              : at::from_blob(data, entry.shape, [opened](void*) {}, options);
  }
  return tensors;
}

}  // namespace levin
