#include "levin/comm/objects.h"

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <cstring>

namespace levin::comm {
namespace {

c10::IValue ivalue_of(const State& state) {
  c10::impl::GenericDict dictionary(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [key, value] : state.values()) {
    dictionary.insert(key, std::visit(
                               [](const auto& held) -> c10::IValue {
                                 using Held = std::decay_t<decltype(held)>;
                                 if constexpr (std::is_same_v<Held, State>)
                                   return ivalue_of(held);
                                 else if constexpr (std::is_same_v<Held, TensorSlice>)
                                   return c10::ivalue::Tuple::create(held.local, held.sizes,
                                                                     held.offsets);
                                 else
                                   return held;
                               },
                               value));
  }
  return dictionary;
}

State state_of_ivalue(const c10::IValue& value) {
  State state;
  for (const auto& entry : value.toGenericDict()) {
    const std::string& key = entry.key().toStringRef();
    const c10::IValue& held = entry.value();
    if (held.isBool()) {
      state.set(key, held.toBool());
    } else if (held.isInt()) {
      state.set(key, held.toInt());
    } else if (held.isDouble()) {
      state.set(key, held.toDouble());
    } else if (held.isString()) {
      state.set(key, held.toStringRef());
    } else if (held.isTensor()) {
      state.set(key, held.toTensor());
    } else if (held.isTuple()) {
      const auto& parts = held.toTupleRef().elements();
      state.set(key,
                TensorSlice{parts[0].toTensor(), parts[1].toIntVector(), parts[2].toIntVector()});
    } else {
      state.set(key, state_of_ivalue(held));
    }
  }
  return state;
}

}  // namespace

at::Tensor bytes_of(const State& state) {
  const std::vector<char> pickled = torch::jit::pickle_save(ivalue_of(state));
  at::Tensor bytes = at::empty({static_cast<int64_t>(pickled.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), pickled.data(), pickled.size());
  return bytes;
}

State state_of(const at::Tensor& bytes) {
  const auto* begin = static_cast<const char*>(bytes.const_data_ptr());
  return state_of_ivalue(torch::jit::pickle_load({begin, begin + bytes.numel()}));
}

}  // namespace levin::comm
