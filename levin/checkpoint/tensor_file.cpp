#include "levin/checkpoint/tensor_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/files/safetensors.h"
#include "levin/files/safetensors_dtype.h"

namespace levin {
namespace {

/// LibTorch has two of these elements in one, along the last dimension, as Python's safetensors has.
constexpr std::string_view kPairs = "F4";
constexpr at::ScalarType kPairType = at::ScalarType::Float4_e2m1fn_x2;

std::string_view type_name(const std::string& tensor, at::ScalarType type) {
  const auto name = files::safetensors_dtype(type);
  LEVIN_CHECK(name.has_value(), "checkpoint.dtype",
              "{} has dtype {}, which safetensors cannot store; convert it first", tensor,
              c10::toString(type));
  return *name;
}

std::optional<at::ScalarType> dtype_of(std::string_view type) {
  return type == kPairs ? kPairType : files::dtype_of_safetensors(type);
}

at::ScalarType scalar_type(const std::filesystem::path& file, const files::TensorEntry& entry) {
  const auto dtype = dtype_of(entry.dtype);
  LEVIN_CHECK(dtype.has_value(), "checkpoint.dtype",
              "{} holds a tensor of dtype {}, which LibTorch does not have: {}", file.string(),
              entry.dtype, printable(entry.name));
  return *dtype;
}

/// Returns the sizes as LibTorch has them.
std::vector<int64_t> sizes_of(const std::filesystem::path& file, const files::TensorEntry& entry) {
  std::vector<int64_t> sizes = entry.shape;
  if (entry.dtype != kPairs) return sizes;
  LEVIN_CHECK(
      !sizes.empty() && sizes.back() % 2 == 0, "checkpoint.dtype",
      "{}: {} is F4 {}, but LibTorch needs an even last dimension, because it packs F4 in pairs",
      file.string(), printable(entry.name), c10::str(at::IntArrayRef(sizes)));
  sizes.back() /= 2;
  return sizes;
}

/// Returns the shape as a file has it.
std::vector<int64_t> shape_of(const at::Tensor& tensor) {
  std::vector<int64_t> shape = tensor.sizes().vec();
  if (tensor.scalar_type() != kPairType) return shape;
  if (shape.empty()) return {2};
  shape.back() *= 2;
  return shape;
}

void check_dense(const std::string& name, const at::Tensor& tensor) {
  const bool dense = tensor.defined() && tensor.layout() == at::kStrided;
  LEVIN_CHECK(dense, "checkpoint.dtype",
              "{} is {}, which safetensors cannot store; convert it first or leave it out", name,
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

at::Tensor whole_tensor(const State& state, const std::string& name) {
  const State::Value& value = state.tensor_or_slice(name);
  const auto* slice = std::get_if<TensorSlice>(&value);
  if (slice == nullptr) return std::get<at::Tensor>(value);
  const bool is_whole =
      slice->local.defined() && slice->local.sizes() == at::IntArrayRef(slice->sizes);
  LEVIN_CHECK(is_whole, "checkpoint.slice",
              "'{}' is sharded: this rank has {} of {}, but one file holds full tensors; gather "
              "them with levin::full(module), or call save_sharded_weights",
              printable(name), slice->local.defined() ? c10::str(slice->local.sizes()) : "nothing",
              c10::str(at::IntArrayRef(slice->sizes)));
  return slice->local;
}

at::Tensor plain(const at::Tensor& tensor) {
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

at::Tensor tensor_of(const files::TensorEntry& entry, const files::SafetensorsFile& file,
                     const std::filesystem::path& path) {
  const at::ScalarType type = scalar_type(path, entry);
  const std::vector<int64_t> sizes = sizes_of(path, entry);
  const auto options = at::TensorOptions(type);
  const auto address = reinterpret_cast<std::uintptr_t>(entry.data.data());
  if (entry.data.empty() || address % at::elementSize(type) != 0) {
    at::Tensor copy = at::empty(sizes, options);
    if (!entry.data.empty()) {
      std::memcpy(copy.mutable_data_ptr(), entry.data.data(), entry.data.size());
    }
    return copy;
  }
  // The map is read-only; what is read here is copied from, never written to.
  auto* data = const_cast<std::byte*>(entry.data.data());
  return at::from_blob(data, sizes, [file](void*) {}, options);
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
    const bool is_pairs = bytes.scalar_type() == kPairType;
    entries.push_back(
        {.name = name,
         .dtype = std::string(is_pairs ? kPairs : type_name(name, bytes.scalar_type())),
         .shape = shape_of(bytes),
         .data = {static_cast<const std::byte*>(bytes.const_data_ptr()),
                  static_cast<size_t>(bytes.nbytes())}});
  }
  return files::write_safetensors(file, entries, {{"format", "pt"}});
}

files::FileDigest write_tensors(const std::filesystem::path& file, const State& tensors) {
  std::map<std::string, at::Tensor> named;
  for (const auto& [name, value] : tensors.values())
    named[name] = detail::whole_tensor(tensors, name);
  return write_tensors(file, named);
}

std::map<std::string, at::Tensor> read_tensors(const std::filesystem::path& path) {
  const files::SafetensorsFile file(path);
  std::map<std::string, at::Tensor> tensors;
  std::vector<std::string> left_out;
  for (const files::TensorEntry& entry : file.entries()) {
    if (dtype_of(entry.dtype)) {
      tensors[entry.name] = detail::tensor_of(entry, file, path);
    } else {
      left_out.push_back(fmt::format("{} ({})", printable(entry.name), entry.dtype));
    }
  }
  if (!left_out.empty()) {
    log::warn("{}: skipped tensors whose dtype LibTorch does not have: {}", path.string(),
              to_text(left_out));
  }
  return tensors;
}

}  // namespace levin
