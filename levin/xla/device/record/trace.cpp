#include "levin/xla/device/record/trace.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <bit>

#include "levin/xla/device/contents.h"

namespace levin::xla {
namespace {

uint64_t word_of(TensorPlace::Kind kind, at::ScalarType dtype, uint32_t memory, size_t rank) {
  return static_cast<uint64_t>(kind) | static_cast<uint64_t>(dtype) << 8U | rank << 16U |
         static_cast<uint64_t>(memory) << 32U;
}

}  // namespace

bool Trace::read(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments) {
  key_.clear();
  tensors_.clear();
  key_.schema = &op.schema();
  key_.words.push_back(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!read_argument(arguments[i], static_cast<uint32_t>(i))) return false;
  }
  return true;
}

void Trace::add_number(uint64_t bits, uint32_t argument) {
  key_.numbers.push_back({.bits = bits, .argument = argument});
}

bool Trace::read_argument(const c10::IValue& argument, uint32_t place) {
  if (argument.isInt()) {
    add_tag(key_.words, KeyTag::kInteger);
    add_number(static_cast<uint64_t>(argument.toInt()), place);
    return true;
  }
  if (argument.isDouble()) {
    add_tag(key_.words, KeyTag::kFloating);
    add_number(std::bit_cast<uint64_t>(argument.toDouble()), place);
    return true;
  }
  return add_argument(key_.words, argument, [&](const at::Tensor& tensor) {
    add_tag(key_.words, KeyTag::kTensor);
    return read_tensor(tensor, place);
  });
}

bool Trace::read_tensor(const at::Tensor& tensor, uint32_t argument) {
  if (!tensor.defined()) {
    key_.words.push_back(word_of(TensorPlace::Kind::kUndefined, at::kFloat, 0, 0));
    return true;
  }
  tensors_.push_back(&tensor);
  if (!tensor.is_xla()) return read_host_tensor(tensor, argument);
  Contents& contents = Contents::of(tensor);
  if (contents.trace != number_) {
    inputs_.push_back(tensor.storage());
    meet(contents);
    add_whole(contents);
  }
  const at::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  KeyWords& words = key_.words;
  words.push_back(
      word_of(TensorPlace::Kind::kDevice, tensor.scalar_type(), contents.place, sizes.size()));
  words.push_back(static_cast<uint64_t>(tensor.storage_offset()));
  for (const int64_t size : sizes) words.push_back(static_cast<uint64_t>(size));
  for (const int64_t stride : strides) words.push_back(static_cast<uint64_t>(stride));
  return true;
}

void Trace::add_whole(const Contents& contents) {
  KeyWords& words = key_.words;
  words.push_back(static_cast<uint64_t>(contents.dtype) | contents.sizes.size() << 8U);
  words.push_back(static_cast<uint64_t>(contents.split_dim));
  words.insert(words.end(), contents.sizes.begin(), contents.sizes.end());
  words.insert(words.end(), contents.strides.begin(), contents.strides.end());
}

bool Trace::read_host_tensor(const at::Tensor& tensor, uint32_t argument) {
  const at::ScalarType dtype = tensor.scalar_type();
  if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    const std::optional<uint32_t> known = place_of_host_number(tensor);
    const uint32_t place = known ? *known : static_cast<uint32_t>(host_numbers_.size());
    if (!known) host_numbers_.push_back(tensor);
    key_.words.push_back(word_of(TensorPlace::Kind::kHostNumber, dtype, place, 0));
    return true;
  }
  key_.words.push_back(word_of(TensorPlace::Kind::kWrappedNumber, dtype, 0, 0));
  switch (dtype) {
    case at::kDouble:
      add_number(std::bit_cast<uint64_t>(*tensor.const_data_ptr<double>()), argument);
      return true;
    case at::kLong:
      add_number(static_cast<uint64_t>(*tensor.const_data_ptr<int64_t>()), argument);
      return true;
    case at::kBool:
      add_number(*tensor.const_data_ptr<bool>() ? 1 : 0, argument);
      return true;
    default:
      return false;
  }
}

TensorPlace Trace::place_of(const at::Tensor& argument) const {
  if (!argument.defined()) return {};
  TensorPlace place = {.kind = TensorPlace::Kind::kDevice, .dtype = argument.scalar_type()};
  if (argument.is_xla()) {
    place.memory = Contents::of(argument).place;
    place.offset = argument.storage_offset();
    place.sizes = argument.sizes();
    place.strides = argument.strides();
  } else if (argument.unsafeGetTensorImpl()->is_wrapped_number()) {
    place.kind = TensorPlace::Kind::kWrappedNumber;
  } else {
    place.kind = TensorPlace::Kind::kHostNumber;
    place.memory = place_of_host_number(argument).value();
  }
  return place;
}

void Trace::go(CallTree::Call& call) {
  at_ = &call;
  for (const CallNumber& number : key_.numbers) numbers_.push_back(number.bits);
}

void Trace::meet(Contents& contents) {
  contents.trace = number_;
  contents.place = static_cast<uint32_t>(memory_.size());
  memory_.push_back(&contents);
}

void Trace::meet_results(at::ArrayRef<c10::IValue> results) {
  const auto meet_new = [&](const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().is_xla()) return;
    Contents& contents = Contents::of(value.toTensor());
    if (contents.trace != number_) meet(contents);
  };
  for (const c10::IValue& result : results) {
    if (result.isTensorList()) {
      std::ranges::for_each(result.toListRef(), meet_new);
    } else {
      meet_new(result);
    }
  }
}

std::optional<uint32_t> Trace::place_of(const Contents& contents) const {
  return contents.trace == number_ ? std::optional(contents.place) : std::nullopt;
}

std::optional<uint32_t> Trace::place_of_host_number(const at::Tensor& number) const {
  const auto found = std::ranges::find_if(
      host_numbers_, [&](const at::Tensor& known) { return known.is_same(number); });
  if (found == host_numbers_.end()) return std::nullopt;
  return static_cast<uint32_t>(found - host_numbers_.begin());
}

const std::vector<uint32_t>& Trace::seen() {
  seen_.clear();
  for (uint32_t i = 0; i < memory_.size(); ++i) {
    const Contents* contents = memory_[i];
    if (contents != nullptr && contents->is_pending && contents->buffers.empty()) {
      seen_.push_back(i);
    }
  }
  return seen_;
}

void Trace::forget(const Contents& contents) {
  if (contents.trace == number_) memory_[contents.place] = nullptr;
}

void Trace::reset() {
  ++number_;
  memory_.clear();
  inputs_.clear();
  host_numbers_.clear();
  numbers_.clear();
  if (tree_.is_full()) tree_.clear();
  at_ = &tree_.root();
}

}  // namespace levin::xla
