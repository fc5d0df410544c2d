#include "levin/graph/fake/fake_tensors.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <ranges>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/memory/refused_pointer.h"
#include "levin/graph/fake/fake_shapes_impl.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/record/current_place.h"
#include "levin/graph/record/interposer.h"

namespace levin::graph {
namespace {

constexpr const char* kRefused =
    "graph.fake.values: the program reads the values of a tensor that a step recorded without "
    "memory does not have; read them with item() or outside of the step, or record the step of a "
    "smaller model with memory";

/// The context of a storage without memory, by which it is known.
void delete_mark(void* mark) { delete static_cast<char*>(mark); }

c10::Storage storage_of(size_t bytes) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(nullptr, new char, &delete_mark, at::kCPU),
                       /*allocator=*/nullptr, /*resizable=*/false);
  storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(kRefused);
  return storage;
}

at::Tensor tensor_on(const c10::Storage& storage, const at::Tensor& like) {
  const at::Tensor tensor = at::empty({0}, at::dtype(like.scalar_type()).device(at::kCPU));
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl.set_storage_keep_dtype(storage);
  impl.set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return tensor;
}

/// Autograd's own is kept; see materialize.
void become(const at::Tensor& tensor, const at::Tensor& fake) {
  if (torch::autograd::AutogradMeta* autograd = torch::autograd::impl::get_autograd_meta(tensor)) {
    const std::scoped_lock lock(autograd->mutex_);
    autograd->grad_accumulator_.reset();
    autograd->grad_.reset();
  }
  tensor.unsafeGetTensorImpl()->shallow_copy_from(fake.getIntrusivePtr());
}

using Stack = std::vector<c10::IValue>;

template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor() && value.toTensor().defined()) visit(value.toTensor());
  if (!value.isTensorList() && !value.isOptionalTensorList()) return;
  for (const c10::IValue& element : value.toListRef()) {
    if (element.isTensor() && element.toTensor().defined()) visit(element.toTensor());
  }
}

bool is_fake(const c10::Storage& storage) {
  const at::DataPtr& pointer = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  return pointer.get_deleter() == &delete_mark;
}

bool any_without_memory(std::span<const c10::IValue> values) {
  bool any = false;
  for (const c10::IValue& value : values) {
    if (value.isStorage()) any |= is_fake(value.toStorage());
    each_tensor(value, [&](const at::Tensor& tensor) { any |= has_no_memory(tensor); });
  }
  return any;
}

/// Kernels of views compare storages by their pointers, and read nothing.
class PointersAllowed {
 public:
  explicit PointersAllowed(std::span<const c10::IValue> values) {
    for (const c10::IValue& value : values) {
      if (value.isStorage() && is_fake(value.toStorage())) storages_.push_back(value.toStorage());
      each_tensor(value, [&](const at::Tensor& tensor) {
        if (has_no_memory(tensor)) storages_.push_back(tensor.storage());
      });
    }
    for (const c10::Storage& storage : storages_) {
      detail::give_pointer_again(*storage.unsafeGetStorageImpl());
    }
  }
  ~PointersAllowed() {
    for (const c10::Storage& storage : storages_) {
      storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
          kRefused);
    }
  }
  PointersAllowed(const PointersAllowed&) = delete;
  PointersAllowed& operator=(const PointersAllowed&) = delete;

 private:
  std::vector<c10::Storage> storages_;
};

/// The arguments of one call as tensors of the meta device, and the way back.
class OnMeta {
 public:
  Stack arguments(std::span<const c10::IValue> given) {
    Stack on_meta;
    for (const c10::IValue& value : given) on_meta.push_back(argument(value));
    return on_meta;
  }

  /// A result that is an argument is that; one that lies in an argument's memory lies there; any
  /// other has memory of its own.
  c10::IValue result(const c10::IValue& value) {
    if (value.isTensor()) return result_tensor(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(result_tensor(element.toTensor()));
    }
    return list;
  }

 private:
  c10::IValue argument(const c10::IValue& value) {
    if (value.isTensor()) return tensor(value.toTensor());
    if (value.isDevice()) return at::Device(at::kMeta);
    if (value.isGenerator()) return {};
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& element : value.toListRef())
        list.push_back(tensor(element.toTensor()));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const c10::IValue& element : value.toListRef()) {
        list.push_back(element.isNone() ? std::nullopt : std::optional(tensor(element.toTensor())));
      }
      return list;
    }
    return value;
  }

  at::Tensor tensor(const at::Tensor& given) {
    if (!given.defined()) return given;
    const bool is_number = given.unsafeGetTensorImpl()->is_wrapped_number();
    if (is_number && !has_no_memory(given)) return given;
    const auto [known, is_new] = by_storage_.try_emplace(given.storage().unsafeGetStorageImpl());
    if (is_new) {
      known->second = at::empty({static_cast<int64_t>(given.storage().nbytes())},
                                at::dtype(at::kByte).device(at::kMeta))
                          .storage();
    }
    at::Tensor made = at::empty({0}, at::dtype(given.scalar_type()).device(at::kMeta));
    c10::TensorImpl& impl = *made.unsafeGetTensorImpl();
    impl.set_storage_keep_dtype(known->second);
    impl.set_sizes_and_strides(given.sizes(), given.strides(), given.storage_offset());
    if (is_number) impl.set_wrapped_number(true);
    originals_.emplace(made.unsafeGetTensorImpl(), given);
    of_storages_.emplace(known->second.unsafeGetStorageImpl(), given.storage());
    kept_.push_back(made);
    return made;
  }

  at::Tensor result_tensor(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_meta()) return tensor;
    const auto original = originals_.find(tensor.unsafeGetTensorImpl());
    if (original != originals_.end()) return original->second;
    const auto storage = of_storages_.find(tensor.storage().unsafeGetStorageImpl());
    if (storage != of_storages_.end()) return tensor_on(storage->second, tensor);
    return tensor_on(
        of_storages_
            .emplace(tensor.storage().unsafeGetStorageImpl(), storage_of(tensor.storage().nbytes()))
            .first->second,
        tensor);
  }

  std::unordered_map<const c10::StorageImpl*, c10::Storage> by_storage_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> of_storages_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> originals_;
  std::vector<at::Tensor> kept_;
};

/// The number that stands for one that is not known.
c10::IValue assumed(at::ScalarType type) {
  if (type == at::kBool) return at::Scalar(false);
  if (c10::isIntegralType(type, /*includeBool=*/false)) return at::Scalar(int64_t{1});
  return at::Scalar(1.0);
}

class FakeHandler final : public OperatorHandler {
 public:
  void call(OperatorCall& call) override {
    const OperatorInfo& info = info_of(call.op());
    Stack& stack = call.stack();
    const size_t count = info.num_parameters();
    const auto given = std::span(stack).last(count);
    if (!any_without_memory(given)) return call.proceed();
    if (info.is_host_read) return read(info, stack);
    if (info.is_inplace_view || info.makes_view()) return run_view(call, count);
    const bool has_results = std::ranges::any_of(info.is_result, std::identity());
    const bool is_out = !info.written.empty() && info.parameters()[info.written.front()].is_out();
    if (!has_results && !is_out) return give_written(info, stack);
    run_on_meta(info, stack);
  }

  AssumedReads reads() const {
    const std::scoped_lock lock(mutex_);
    return reads_;
  }

 private:
  void read(const OperatorInfo& info, Stack& stack) {
    const at::Tensor tensor = stack[stack.size() - info.num_parameters()].toTensor();
    const bool gives_number = info.name == "aten::_local_scalar_dense";
    LEVIN_CHECK(gives_number || info.is_equal, "graph.fake.values",
                "the sizes of {}'s result depend on values, which a step recorded without memory "
                "does not have{}; avoid it in the training step, or record the step with memory",
                info.name, current_place());
    stack.resize(stack.size() - info.num_parameters());
    stack.push_back(gives_number ? assumed(tensor.scalar_type()) : c10::IValue(false));
    const std::scoped_lock lock(mutex_);
    ++reads_[info.name + current_place()];
  }

  static void run_view(OperatorCall& call, size_t count) {
    Stack& stack = call.stack();
    const Stack given(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
    const PointersAllowed allowed(given);
    call.proceed();
  }

  /// Nothing but its arguments is written: they are the results.
  static void give_written(const OperatorInfo& info, Stack& stack) {
    const size_t base = stack.size() - info.num_parameters();
    Stack results;
    for (size_t i = 0; i < info.is_result.size(); ++i) {
      results.push_back(stack[base + info.written.at(i)]);
    }
    stack.resize(base);
    std::ranges::move(results, std::back_inserter(stack));
  }

  static void run_on_meta(const OperatorInfo& info, Stack& stack) {
    const size_t count = info.num_parameters(), base = stack.size() - count;
    OnMeta on_meta;
    Stack results = on_meta.arguments(std::span(stack).last(count));
    const fake::ShapeRule rule = fake::shape_rule(info.name);
    try {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      if (rule != nullptr) {
        results = rule(results);
      } else {
        info.op.callBoxed(results);
      }
    } catch (const c10::NotImplementedError&) {
      LEVIN_FAIL("graph.fake.operator",
                 "{} has no kernel that gives the sizes of its results without values{}; avoid it "
                 "in the training step, or record the step with memory",
                 info.name, current_place());
    }
    Stack fake;
    for (const c10::IValue& result : results) fake.push_back(on_meta.result(result));
    stack.resize(base);
    std::ranges::move(fake, std::back_inserter(stack));
  }

  mutable std::mutex mutex_;
  AssumedReads reads_;
};

}  // namespace

bool has_no_memory(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.is_cpu()) return false;
  return is_fake(tensor.storage());
}

at::Tensor without_memory(const at::Tensor& like) {
  if (!like.defined() || has_no_memory(like)) return like;
  const at::Tensor shape = at::empty_strided(like.sizes(), like.strides(),
                                             at::dtype(like.scalar_type()).device(at::kMeta));
  return tensor_on(storage_of(shape.storage().nbytes()), shape);
}

void drop_memory(torch::nn::Module& module) {
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages;
  std::vector<at::Storage> kept;  // an address stays taken
  std::vector<at::Tensor> tensors = module.parameters();
  for (const at::Tensor& buffer : module.buffers()) tensors.push_back(buffer);
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage() || has_no_memory(tensor)) continue;
    const at::Storage storage = tensor.storage();
    kept.push_back(storage);
    const auto [known, is_new] = storages.try_emplace(storage.unsafeGetStorageImpl());
    if (is_new) known->second = storage_of(storage.nbytes());
    become(tensor, tensor_on(known->second, tensor));
  }
}

struct FakeScope::Impl {
  FakeHandler handler;
  HandlerScope scope{handler};
};

FakeScope::FakeScope() : impl_(std::make_unique<Impl>()) {}
FakeScope::~FakeScope() = default;

AssumedReads FakeScope::reads() const { return impl_->handler.reads(); }

}  // namespace levin::graph
