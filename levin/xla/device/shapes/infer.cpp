// The types of an operator's results from those of its arguments.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "levin/base/check.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/tensors_in.h"
#include "levin/xla/device/runtime_impl.h"
#include "levin/xla/device/shapes/shapes_impl.h"

namespace levin::xla {
namespace {

using Schemas = std::unordered_map<const c10::FunctionSchema*, ShapeFunction>;

Schemas known_schemas() {
  Schemas known;
  for (const auto& shapes : {layer_shapes(), element_shapes()}) {
    for (const auto& [name, shape] : shapes) {
      const std::string_view full = name;
      const size_t dot = full.find('.');
      const std::string base(full.substr(0, dot));
      const std::string overload(dot == std::string_view::npos ? "" : full.substr(dot + 1));
      const auto op = c10::Dispatcher::singleton().findSchema({base, overload});
      if (op) known.emplace(&op->schema(), shape);
    }
  }
  return known;
}

/// Returns nullptr if there is none.
ShapeFunction find_shape(const c10::OperatorHandle& op) {
  static const Schemas known = known_schemas();
  const auto found = known.find(&op.schema());
  return found == known.end() ? nullptr : found->second;
}

/// Tensors of the device as others of the same geometry, those of one storage in one; and back.
class Likeness {
 public:
  Likeness(std::shared_ptr<RuntimeImpl> runtime, at::DeviceType device)
      : runtime_(std::move(runtime)), device_(device) {}

  at::Tensor to(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != at::kXLA) return tensor;
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    auto place = likes_.find(storage);
    if (place == likes_.end()) place = likes_.emplace(storage, memory_like(tensor)).first;
    at::Tensor like = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(place->second.storage()), place->second.key_set(), tensor.dtype());
    like.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                      tensor.storage_offset());
    sources_.emplace(place->second.storage().unsafeGetStorageImpl(), tensor);
    arguments_.emplace(like.unsafeGetTensorImpl(), Argument{like, tensor});
    return like;
  }

  at::Tensor back(const at::Tensor& like) {
    if (!like.defined()) return like;
    if (const auto same = arguments_.find(like.unsafeGetTensorImpl()); same != arguments_.end()) {
      return same->second.tensor;
    }
    const auto source = sources_.find(like.storage().unsafeGetStorageImpl());
    if (source != sources_.end()) {
      return Contents::view_of(source->second, like.sizes(), like.strides(), like.storage_offset(),
                               like.scalar_type());
    }
    at::Tensor made =
        Contents::make_tensor(runtime_, like.sizes(), like.strides(), like.scalar_type());
    sources_.emplace(like.storage().unsafeGetStorageImpl(), made);
    kept_.push_back(like);
    return made;
  }

  /// An out= argument of other sizes has been given those of the result.
  void resize_arguments() {
    for (const auto& [impl, argument] : arguments_) {
      const auto& [like, tensor] = argument;
      if (like.sizes() != tensor.sizes()) Contents::renew(tensor, like.sizes(), like.strides());
    }
  }

 private:
  at::Tensor memory_like(const at::Tensor& tensor) const {
    const auto options = at::TensorOptions(at::kByte).device(device_);
    const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
    return device_ == at::kCPU ? at::zeros({bytes}, options) : at::empty({bytes}, options);
  }

  std::shared_ptr<RuntimeImpl> runtime_;
  at::DeviceType device_;
  std::unordered_map<const c10::StorageImpl*, at::Tensor> likes_;
  std::unordered_map<const c10::StorageImpl*, at::Tensor> sources_;  ///< by the like's storage
  struct Argument {
    at::Tensor like, tensor;
  };
  std::unordered_map<const c10::TensorImpl*, Argument> arguments_;
  std::vector<at::Tensor> kept_;
};

/// Operators that LibTorch has no shape function of in C++, as they turn out.
std::unordered_set<const c10::FunctionSchema*>& without_meta() {
  static std::unordered_set<const c10::FunctionSchema*> found;
  return found;
}

bool has_meta_kernel(const c10::OperatorHandle& op) {
  return !without_meta().contains(&op.schema());
}

/// Returns the arguments that an operator writes in place and returns, if it returns nothing else.
/// Empty for other operators, and for out=, which may be given other sizes.
std::vector<size_t> handed_back(const c10::FunctionSchema& schema) {
  std::vector<size_t> places;
  for (const c10::Argument& result : schema.returns()) {
    if (!graph::is_written(result)) return {};
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
      if (alias == nullptr || *alias != *result.alias_info()) continue;
      if (schema.arguments()[i].is_out()) return {};
      places.push_back(i);
    }
  }
  return places.size() == schema.returns().size() ? places : std::vector<size_t>();
}

at::Tensor made(const ResultType& type, const std::shared_ptr<RuntimeImpl>& runtime) {
  if (!type.is_defined) return {};
  return Contents::make_tensor(runtime, type.sizes, c10::contiguous_strides(type.sizes),
                               type.dtype);
}

std::vector<c10::IValue> results_of(const c10::OperatorHandle& op,
                                    const std::vector<c10::IValue>& stack, size_t first,
                                    const std::shared_ptr<RuntimeImpl>& runtime,
                                    at::DeviceType device) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  Likeness likeness(runtime, device);
  std::vector<c10::IValue> likes(stack.begin() + static_cast<int64_t>(first), stack.end());
  for (c10::IValue& value : likes) {
    value = graph::with_tensors_replaced(
        value, [&](const at::Tensor& tensor) { return likeness.to(tensor); });
    if (value.isDevice() && value.toDevice().type() == at::kXLA) value = c10::Device(device);
  }
  op.callBoxed(&likes);
  likeness.resize_arguments();
  for (c10::IValue& value : likes) {
    value = graph::with_tensors_replaced(
        value, [&](const at::Tensor& tensor) { return likeness.back(tensor); });
  }
  return likes;
}

struct FoundOut {
  std::vector<c10::IValue> results = {};
  bool ran_on_host = false;
};

/// By a table, without elements, or on the host.
FoundOut found_out(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack,
                   size_t first, const std::shared_ptr<RuntimeImpl>& runtime) {
  std::vector<c10::IValue> results;
  if (const ShapeFunction shape = find_shape(op)) {
    for (const ResultType& type : shape(at::ArrayRef(stack).slice(first))) {
      results.emplace_back(made(type, runtime));
    }
    return {std::move(results)};
  }
  if (has_meta_kernel(op)) {
    try {
      return {results_of(op, stack, first, runtime, at::kMeta)};
    } catch (const c10::NotImplementedError&) {
      without_meta().insert(&op.schema());
    }
  }
  const std::vector<size_t> places = handed_back(op.schema());
  // An operator that has no shape function runs on zeros of the CPU.
  if (places.empty()) {
    return {.results = results_of(op, stack, first, runtime, at::kCPU), .ran_on_host = true};
  }
  for (const size_t place : places) results.push_back(stack[first + place]);
  return {std::move(results)};
}

}  // namespace

void infer(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
           const std::shared_ptr<RuntimeImpl>& runtime) {
  const size_t first = stack.size() - op.schema().arguments().size();
  if (runtime->memo.inferred.find(op, stack, runtime)) return;
  FoundOut found = {};
  if (!op.schema().returns().empty()) found = found_out(op, stack, first, runtime);
  const auto& [results, ran_on_host] = found;
  // Each call of one that draws on the host is to draw.
  if (!ran_on_host || !op.hasTag(at::Tag::nondeterministic_seeded)) {
    runtime->memo.inferred.add(op, at::ArrayRef(stack).slice(first), results);
  }
  stack.resize(first);
  stack.insert(stack.end(), results.begin(), results.end());
}

}  // namespace levin::xla
