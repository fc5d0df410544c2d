#include "levin/xla/device/shapes/inferred.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <utility>

#include "levin/xla/device/contents.h"

namespace levin::xla {

bool Inferred::read(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments) {
  key_.clear();
  tensors_.clear();
  storages_.clear();
  key_.push_back(reinterpret_cast<uint64_t>(&op.schema()));
  key_.push_back(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  return std::ranges::all_of(arguments, [&](const c10::IValue& argument) {
    return add_argument(key_, argument,
                        [&](const at::Tensor& tensor) { return read_tensor(tensor); });
  });
}

/// Its geometry, and which tensor before it lies in the same memory.
bool Inferred::read_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    add_tag(key_, KeyTag::kNone);
    return true;
  }
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const auto place = std::ranges::find(storages_, storage) - storages_.begin();
  tensors_.push_back(&tensor);
  storages_.push_back(storage);
  add_tag(key_, tensor.unsafeGetTensorImpl()->is_wrapped_number() ? KeyTag::kNumberTensor
                                                                  : KeyTag::kTensor);
  key_.push_back(static_cast<uint64_t>(tensor.scalar_type()) |
                 static_cast<uint64_t>(tensor.device().type()) << 8U |
                 static_cast<uint64_t>(tensor.dim()) << 16U | static_cast<uint64_t>(place) << 32U);
  key_.push_back(static_cast<uint64_t>(tensor.storage_offset()));
  key_.insert(key_.end(), tensor.sizes().begin(), tensor.sizes().end());
  key_.insert(key_.end(), tensor.strides().begin(), tensor.strides().end());
  return true;
}

void Inferred::put(const Returns& returns, const Tensors& tensors, Stack& stack, size_t first,
                   MakeNew make_new) {
  const auto made = [&](const Result& result) -> at::Tensor {
    switch (result.source) {
      case Source::kUndefined:
        return {};
      case Source::kNew:
        return make_new(result);
      case Source::kArgument:
        return *tensors[result.argument];
      case Source::kView:
        return Contents::view_of(*tensors[result.argument], result.sizes, result.strides,
                                 result.offset, result.dtype);
    }
    return {};
  };
  // The tensors are on the stack until all results are made.
  c10::SmallVector<c10::IValue, 4> results;
  for (const Return& given : returns) {
    if (!given.is_list) {
      results.emplace_back(made(given.results.front()));
      continue;
    }
    c10::List<at::Tensor> list;
    for (const Result& result : given.results) list.push_back(made(result));
    results.emplace_back(std::move(list));
  }
  stack.resize(first);
  std::ranges::move(results, std::back_inserter(stack));
}

bool Inferred::find(const c10::OperatorHandle& op, Stack& stack,
                    const std::shared_ptr<RuntimeImpl>& runtime) {
  const size_t first = stack.size() - op.schema().arguments().size();
  last_ = nullptr;
  has_key_ = read(op, at::ArrayRef(stack).slice(first));
  if (!has_key_) return false;
  const auto found = known_.find(key_);
  if (found == known_.end()) return false;
  last_ = &found->second;
  put(*last_, tensors_, stack, first, [&](const Result& result) {
    return Contents::make_tensor(runtime, result.sizes, result.strides, result.dtype);
  });
  return true;
}

void Inferred::add(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments,
                   at::ArrayRef<c10::IValue> results) {
  if (!has_key_) return;
  const KeyWords key = key_;
  // The operator may have given other memory to a tensor that it wrote.
  if (!read(op, arguments) || key_ != key) return;
  Returns returns;
  for (const c10::IValue& result : results) {
    std::optional<Return> given = described(result);
    if (!given) return;
    returns.push_back(std::move(*given));
  }
  // If sizes depend on values, each call may be a new one; so a full table is emptied.
  if (known_.size() == kMostCalls) known_.clear();
  last_ = &known_.emplace(key, std::move(returns)).first->second;
}

std::optional<Inferred::Return> Inferred::described(const c10::IValue& value) const {
  Return given = {.is_list = value.isTensorList()};
  if (!given.is_list && !value.isTensor()) return std::nullopt;
  const std::vector<at::Tensor> tensors =
      given.is_list ? value.toTensorVector() : std::vector<at::Tensor>{value.toTensor()};
  for (const at::Tensor& tensor : tensors) {
    std::optional<Result> result = described(tensor);
    if (!result) return std::nullopt;
    given.results.push_back(std::move(*result));
  }
  return given;
}

std::optional<Inferred::Result> Inferred::described(const at::Tensor& tensor) const {
  if (!tensor.defined()) return Result{};
  Result result = {.source = Source::kNew,
                   .dtype = tensor.scalar_type(),
                   .sizes = tensor.sizes().vec(),
                   .strides = tensor.strides().vec(),
                   .offset = tensor.storage_offset()};
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i]->is_same(tensor)) {
      return Result{.source = Source::kArgument, .argument = i};
    }
  }
  const auto place = std::ranges::find(storages_, storage);
  if (place != storages_.end()) {
    result.source = Source::kView;
    result.argument = static_cast<size_t>(place - storages_.begin());
    return result;
  }
  // Another result that lies in the same new memory would have to as well.
  if (!tensor.is_xla() || !Contents::of(tensor).is_base(tensor)) return std::nullopt;
  return tensor.storage().use_count() == 1 ? std::optional(result) : std::nullopt;
}

}  // namespace levin::xla
