#pragma once
// Arguments of operators as numbers, so that those of two calls are compared word by word.

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace levin::xla {

using KeyWords = std::vector<uint64_t>;

/// The first word of an argument's words.
enum class KeyTag : uint64_t {
  kNone,
  kBool,
  kInteger,
  kFloating,
  kText,
  kIntegers,
  kFloatings,
  kFlags,
  kDevice,
  kTensor,
  kTensors,
  kNumberTensor,
  kValue,
  kValues
};

inline void add_tag(KeyWords& words, KeyTag tag) { words.push_back(static_cast<uint64_t>(tag)); }

/// Floating numbers to the bit. False for what has no words, as a generator.
bool add_constant(KeyWords& words, const c10::IValue& constant);

/// The same for tensors, which read_tensor adds, and lists of them.
template <class ReadTensor>
bool add_argument(KeyWords& words, const c10::IValue& argument, const ReadTensor& read_tensor) {
  if (argument.isTensor()) return read_tensor(argument.toTensor());
  if (!argument.isTensorList() && !argument.isOptionalTensorList()) {
    return add_constant(words, argument);
  }
  const at::ArrayRef<c10::IValue> list = argument.toListRef();
  add_tag(words, KeyTag::kTensors);
  words.push_back(list.size());
  return std::ranges::all_of(list, [&](const c10::IValue& element) {
    if (!element.isNone()) return read_tensor(element.toTensor());
    add_tag(words, KeyTag::kNone);
    return true;
  });
}

uint64_t hash_of(const KeyWords& words);

}  // namespace levin::xla
