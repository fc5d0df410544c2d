#pragma once
// Arguments of operators as numbers, so that those of two calls are compared word by word.

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace levin::xla {

using KeyWords = std::vector<uint64_t>;

/// What the words of an argument begin with.
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

uint64_t hash_of(const KeyWords& words);

}  // namespace levin::xla
