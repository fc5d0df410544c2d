// The tensors of an archive: Python's calls that make one of a storage, and which tensors levin reads.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "levin/base/options.h"
#include "levin/checkpoint/torch/archive_impl.h"
#include "levin/checkpoint/torch/dtypes_impl.h"

namespace levin::detail {
namespace {

using Kind = PickleValue::Kind;
constexpr size_t kMostDims = 64;    // as LibTorch's operators take
constexpr size_t kMostFields = 64;  // fields of a tensor beside its memory

/// Storage classes, whose elements are of one type, and dtypes themselves.
const std::map<std::string, at::ScalarType, std::less<>>& types() {
  static const auto known = [] {
    std::map<std::string, at::ScalarType, std::less<>> names = {
        {"torch.storage UntypedStorage", at::kByte}, {"torch UntypedStorage", at::kByte}};
    for (const TorchDtype& dtype : kTorchDtypes) {
      names.emplace("torch " + std::string(dtype.python), dtype.type);
      if (!dtype.storage.empty()) names.emplace("torch " + std::string(dtype.storage), dtype.type);
    }
    return names;
  }();
  return known;
}

/// Functions that make a tensor of another kind than one of a storage, with the name of that kind.
const std::map<std::string_view, std::string_view>& other_tensors() {
  static const std::map<std::string_view, std::string_view> known = {
      {"torch._utils _rebuild_sparse_tensor", "a sparse tensor"},
      {"torch._utils _rebuild_sparse_csr_tensor", "a sparse tensor"},
      {"torch._utils _rebuild_nested_tensor", "a nested tensor"},
      {"torch._utils _rebuild_qtensor", "a quantized tensor"},
      {"torch._utils _rebuild_meta_tensor_no_storage",
       "a tensor on the meta device, without values"},
      {"torch._utils _rebuild_device_tensor_from_numpy", "a tensor of another device"},
      {"torch._utils _rebuild_device_tensor_from_cpu_tensor", "a tensor of another device"},
      {"torch._utils _rebuild_wrapper_subclass", "a tensor of a class of its own"},
  };
  return known;
}

/// Classes whose tensors are plain ones with attributes of Python.
bool is_plain_class(const PickleValue& type) {
  return type.text == "torch Tensor" || type.text == "torch.nn.parameter Parameter" ||
         type.text == "torch.nn.parameter Buffer";
}

bool is_parameter_function(std::string_view function) {
  return function == "torch._utils _rebuild_parameter" ||
         function == "torch._utils _rebuild_parameter_with_state";
}

/// An object of a function and its arguments.
bool is_call(const PickleValue& value) {
  return value.is(Kind::kObject) && value.of != nullptr && value.arguments != nullptr &&
         value.arguments->is(Kind::kTuple);
}

/// (function, class, arguments, attributes): how Python's torch pickles a tensor that has attributes,
/// or is of a class of its own.
const PickleValue* from_type(const PickleValue& value) {
  const bool is_it = is_call(value) && value.is_object_of("torch._tensor _rebuild_from_type_v2") &&
                     value.arguments->items.size() >= 3;
  return is_it ? value.arguments : nullptr;
}

/// The name of the function that makes a tensor, "torch._utils _rebuild_tensor_v2"; empty for a value that is no call.
std::string_view function_of(const PickleValue& value) {
  if (const PickleValue* typed = from_type(value)) return typed->items[0]->text;
  return is_call(value) ? std::string_view(value.of->text) : std::string_view();
}

std::string reason_of(const PickleValue& value) {
  const PickleValue* typed = from_type(value);
  if (typed != nullptr && !is_plain_class(*typed->items[1])) {
    std::string name = printable(typed->items[1]->text);
    std::ranges::replace(name, ' ', '.');
    return "a tensor of the class " + name;
  }
  const auto other = other_tensors().find(function_of(value));
  return other == other_tensors().end() ? "" : std::string(other->second);
}

}  // namespace

std::optional<at::ScalarType> type_of_storage(std::string_view name) {
  const auto known = types().find(name);
  return known == types().end() ? std::nullopt : std::optional(known->second);
}

std::string TorchArchive::reason_not_read(const PickleValue& value) {
  if (!is_call(value)) return "";
  const bool is_parameter =
      is_parameter_function(value.of->text) && !value.arguments->items.empty();
  return reason_of(is_parameter ? *value.arguments->items.front() : value);
}

const PickleValue& TorchArchive::item(const PickleValue& tuple, size_t place) const {
  if (place >= tuple.items.size()) fail("it has a tensor with missing fields");
  return *tuple.items[place];
}

std::vector<int64_t> TorchArchive::integers_of(const PickleValue& tuple) const {
  if (tuple.items.size() > kMostDims) fail("it has a tensor of too many dims");
  std::vector<int64_t> numbers;
  for (const PickleValue* value : tuple.items) {
    if (!value->is(Kind::kInteger) || value->integer < 0)
      fail("it has a tensor without a valid shape");
    numbers.push_back(value->integer);
  }
  return numbers;
}

// ("storage", class, key, device, number of elements)
at::Tensor TorchArchive::storage_of(const PickleValue& persistent,
                                    std::optional<at::ScalarType> type) {
  if (!persistent.is(Kind::kPersistent) || persistent.of->items.size() < 5) {
    fail("it has a tensor without a storage");
  }
  const std::string_view kind = item(*persistent.of, 1).text;
  const std::string_view key = item(*persistent.of, 2).text;
  if (!type) type = type_of_storage(kind);
  if (!type) fail(fmt::format("it has a storage of class {}", kind));
  const auto found = storages_.find(key);
  if (found != storages_.end() && found->second.scalar_type() == *type) return found->second;
  const auto data = storage_bytes(own_text(key));
  const size_t width = at::elementSize(*type);
  const auto count = static_cast<int64_t>(data.size() / width);
  const bool is_aligned = reinterpret_cast<uintptr_t>(data.data()) % width == 0;
  // Tensors of several dtypes may lie in one storage, and share it here too.
  if (found != storages_.end() && is_aligned && data.size() % width == 0 &&
      found->second.nbytes() == data.size()) {
    return found->second.view(at::kByte).view(*type);
  }
  at::Tensor& storage = storages_[std::string(key)];
  if (count == 0 || !is_aligned) {
    storage = at::empty({count}, *type);
    if (count > 0)
      std::memcpy(storage.mutable_data_ptr(), data.data(), data.size() / width * width);
  } else {
    // The map is read-only; what is read here is copied from, never written to.
    auto* address = const_cast<std::byte*>(data.data());
    storage = at::from_blob(address, {count}, [map = map_](void*) {}, at::TensorOptions(*type));
  }
  return storage;
}

// (storage, offset, sizes, strides, ...)
at::Tensor TorchArchive::rebuilt(const PickleValue& arguments, std::optional<at::ScalarType> type) {
  const at::Tensor storage = storage_of(item(arguments, 0), type);
  const int64_t offset = item(arguments, 1).integer;
  const auto sizes = integers_of(item(arguments, 2)), strides = integers_of(item(arguments, 3));
  if (sizes.size() != strides.size() || offset < 0) fail("it has a tensor without a valid shape");
  int64_t last = offset;  // last of its elements in the storage
  auto bytes = static_cast<int64_t>(storage.element_size());
  bool is_empty = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t step = 0;
    is_empty |= sizes[i] == 0;
    const bool too_far =
        __builtin_mul_overflow(std::max<int64_t>(sizes[i] - 1, 0), strides[i], &step) ||
        __builtin_add_overflow(last, step, &last);
    if (too_far) fail("it has a tensor that is larger than its storage");
    // With a stride of 0 all elements lie at one place, even if there are many.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(sizes[i], 1), &bytes)) {
      fail(fmt::format("it has a tensor of sizes [{}], whose number of bytes exceeds 64 bits",
                       fmt::join(sizes, ", ")));
    }
  }
  if (is_empty) return at::empty(sizes, storage.options());
  if (last >= storage.numel()) fail("it has a tensor that is larger than its storage");
  return storage.as_strided(sizes, strides, offset);
}

bool TorchArchive::has_flag(const PickleValue& dict, std::string_view name) const {
  if (dict.entries.size() > kMostFields) fail("it has a tensor with too many attributes");
  const PickleValue* flag = dict.find(name);
  return flag != nullptr && flag->boolean;
}

std::optional<at::Tensor> TorchArchive::tensor_of(const PickleValue& value) {
  try {
    auto tensor = made_of(value);
    if (tensor) count_value();
    return tensor;
  } catch (const c10::Error& error) {
    fail(fmt::format("it has a tensor that LibTorch refuses ({})", error.what_without_backtrace()));
  }
}

std::optional<at::Tensor> TorchArchive::made_of(const PickleValue& value) {
  if (!value.is(Kind::kObject) || !value.arguments->is(Kind::kTuple)) return std::nullopt;
  if (const PickleValue* typed = from_type(value)) {
    if (!reason_not_read(value).empty() || !typed->items[2]->is(Kind::kTuple)) return std::nullopt;
    return tensor_by(typed->items[0]->text, *typed->items[2]);
  }
  if (value.of == nullptr || !value.of->is(Kind::kGlobal)) return std::nullopt;
  return tensor_by(value.of->text, *value.arguments);
}

std::optional<at::Tensor> TorchArchive::tensor_by(std::string_view function,
                                                  const PickleValue& arguments) {
  if (function == "torch._utils _rebuild_tensor") return rebuilt(arguments, std::nullopt);
  if (function == "torch._utils _rebuild_tensor_v2") {
    at::Tensor tensor = rebuilt(arguments, std::nullopt);
    if (arguments.items.size() > 6) {  // flags beside the tensor's memory
      if (has_flag(item(arguments, 6), "conj")) tensor = tensor.conj();
      if (has_flag(item(arguments, 6), "neg")) tensor = tensor._neg_view();
    }
    return tensor;
  }
  if (function == "torch._utils _rebuild_tensor_v3") {
    const auto type = type_of_storage(item(arguments, 6).text);
    if (!type) fail(fmt::format("it has a tensor of type {}", item(arguments, 6).text));
    return rebuilt(arguments, type);
  }
  if (is_parameter_function(function)) {
    const PickleValue& data = item(arguments, 0);
    // A parameter of a parameter might be a ring.
    auto tensor = is_parameter_function(function_of(data)) ? std::nullopt : made_of(data);
    if (!tensor) fail("it has a parameter without a tensor");
    return tensor;
  }
  return std::nullopt;
}

}  // namespace levin::detail
