// The kernels of the device "xla": what the dispatcher calls for its tensors.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/detach_native.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/record/current_place.h"
#include "levin/xla/device/runtime_impl.h"
#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

using c10::DispatchKey;

/// Autograd starts threads for the devices that there are at a process's first backward pass, and
/// a process that has them can fork no more: one without XLA is to have none.
struct GuardImpl final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::XLA> {
  c10::DeviceIndex deviceCount() const noexcept override {
    return RuntimeImpl::current() == nullptr ? 0 : 1;
  }
};
C10_REGISTER_GUARD_IMPL(XLA, GuardImpl);

/// Kept by its tensors, and by whoever opened it.
RuntimeImpl& runtime() {
  RuntimeImpl* const current = RuntimeImpl::current();
  LEVIN_CHECK(current != nullptr, "xla.closed",
              "got a tensor for the device xla, but no such device is open; train with "
              "accelerator=xla, or call levin::xla::Runtime::open");
  return *current;
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> /*device*/, std::optional<bool> /*pinned*/) {
  return Contents::make_tensor(runtime().shared_from_this(), sizes, strides,
                               dtype.value_or(c10::get_default_dtype_as_scalartype()));
}

at::Tensor new_empty_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                             std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                             std::optional<at::Device> device, std::optional<bool> pinned) {
  return at::empty_strided(sizes, strides, dtype.value_or(self.scalar_type()), layout,
                           device.value_or(self.device()), pinned);
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  const at::Tensor like = at::detail::empty_meta(sizes, dtype, layout, at::kMeta, pinned, format);
  return empty_strided(sizes, like.strides(), like.scalar_type(), layout, device, pinned);
}

/// By the device that it is of, which may have been closed.
RuntimeImpl& runtime_of(const at::Tensor& tensor) { return *Contents::of(tensor).runtime; }

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  if (!target.device().is_xla()) {
    target.copy_(runtime_of(source).recording.download(source, "a copy").view_as(source));
    return target;
  }
  RuntimeImpl& impl = runtime();
  const std::scoped_lock lock(impl.mutex);
  Contents& contents = Contents::of(target);
  const bool is_new = !contents.is_pending && contents.buffers.empty();
  at::Tensor from = source;
  if (!source.device().is_xla()) {
    const at::Tensor expanded = source.expand(target.sizes());
    if (is_new && contents.is_base(target)) {
      impl.devices.upload(contents, expanded, impl.devices.splits_uploads);
      return target;
    }
    const at::Tensor whole = source.to(target.scalar_type()).contiguous();
    from = Contents::make_tensor(impl.shared_from_this(), whole.sizes(), whole.strides(),
                                 whole.scalar_type());
    impl.devices.upload(Contents::of(from), whole, /*split=*/false);
  }
  static const c10::OperatorHandle copy =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  torch::jit::Stack stack = {target, from, false};
  impl.recording.record(copy, stack);
  return target;
}

/// Copies what the CPU computed for an operator without a lowering into its argument.
at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (source.sizes() != target.sizes()) {
    Contents::renew(target, source.sizes(), c10::contiguous_strides(source.sizes()));
  }
  return copy_from(source, target, false);
}

/// Elements that both sizes have are kept, in the order of their rows.
const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> /*format*/) {
  // NOLINTBEGIN(bugprone-return-const-ref-from-parameter): as the dispatcher wants it of resize_
  if (self.sizes() == sizes) return self;
  const at::Tensor fresh = at::empty(sizes, self.options());
  const int64_t kept = std::min(self.numel(), fresh.numel());
  if (kept > 0) fresh.view({-1}).narrow(0, 0, kept).copy_(self.reshape({-1}).narrow(0, 0, kept));
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  impl.set_storage_keep_dtype(fresh.storage());
  impl.set_sizes_and_strides(fresh.sizes(), fresh.strides(), 0);
  return self;
  // NOLINTEND(bugprone-return-const-ref-from-parameter)
}

/// LibTorch's own does not know the device; the other operators of this kind end here.
const at::Tensor& as_strided_in_place(const at::Tensor& self, at::IntArrayRef sizes,
                                      at::IntArrayRef strides, std::optional<int64_t> offset) {
  // NOLINTBEGIN(bugprone-return-const-ref-from-parameter): as the dispatcher wants it
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return self;
  // NOLINTEND(bugprone-return-const-ref-from-parameter)
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_local_scalar_dense", "");
  return runtime_of(tensor).recording.read(op, {tensor}, "item()").toScalar();
}

/// LibTorch's attention asks whether its query, key and value are equal to project them by one
/// product; by a product for each it gives the same.
bool is_asked_by_attention() {
  static graph::StackSearch attention({"MultiheadAttentionImpl", "multi_head_attention_forward"});
  return attention.finds();
}

/// The same tensor, or other sizes, are known without a look at the values.
bool equal(const at::Tensor& left, const at::Tensor& right) {
  if (left.sizes() != right.sizes()) return false;
  const bool is_same =
      left.is_same(right) || (left.is_alias_of(right) && left.strides() == right.strides() &&
                              left.storage_offset() == right.storage_offset());
  if (is_same) return true;
  if (is_asked_by_attention()) return false;
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::equal", "");
  return runtime_of(left).recording.read(op, {left, right}, "aten::equal").toBool();
}

/// Module::to puts a parameter's new tensor into the old one.
bool has_compatible_type(const at::Tensor& self, const at::Tensor& from) {
  const auto is_dense = [](const at::Tensor& tensor) {
    return tensor.device().is_cpu() || tensor.device().is_xla();
  };
  return is_dense(self) && is_dense(from) && self.layout() == from.layout();
}

/// A program's rows are all there: the gradient that is asked for as a sparse tensor has the same
/// values as a dense one, and costs no more.
at::Tensor embedding_backward(const at::Tensor& grad, const at::Tensor& indices, c10::SymInt rows,
                              c10::SymInt padding, bool scales, bool /*sparse*/) {
  return at::embedding_dense_backward_symint(grad, indices, std::move(rows), std::move(padding),
                                             scales);
}

at::Tensor negated_view(const at::Tensor& tensor) {
  LEVIN_FAIL("xla.tensor",
             "got a negated view of a tensor {} on xla, which programs do not support; use -x",
             c10::str(tensor.sizes()));
}

void refuse_sparse(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                   torch::jit::Stack* /*stack*/) {
  LEVIN_FAIL("xla.tensor",
             "got {} of a sparse tensor on xla, which has dense tensors only; call to_dense() "
             "before moving it there",
             c10::toString(op.operator_name()));
}

void run_on_host(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                 torch::jit::Stack* stack) {
  RuntimeImpl& impl = runtime();
  const std::scoped_lock lock(impl.mutex);
  ++impl.report.host_fallbacks;
  const std::string name = c10::toString(op.operator_name());
  impl.recording.flush("the CPU computes " + name + " of it, which has no form in StableHLO");
  if (impl.host_operators.insert(name).second) {
    log::warn(
        "xla: {} has no form in StableHLO; in each step the operators before it run first, then "
        "the CPU computes it",
        name);
  }
  at::native::cpu_fallback(op, stack);
}

/// The kernel of an operator that has a lowering.
class RecordKernel final : public c10::OperatorKernel {
 public:
  explicit RecordKernel(const c10::OperatorHandle& op)
      : condition_(condition_of(op)), num_arguments_(op.schema().arguments().size()) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const bool is_ours =
        can_lower(condition_, at::ArrayRef(*stack).slice(stack->size() - num_arguments_));
    return is_ours ? runtime().recording.record(op, *stack) : run_on_host(op, keys, stack);
  }

 private:
  LowerCondition condition_;
  size_t num_arguments_;
};

torch::CppFunction record_kernel(const c10::OperatorHandle& op) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RecordKernel>(op));
}

/// Returns whether the operator is recorded as one node. LibTorch itself handles operators that
/// change only a tensor's geometry (transpose_): no element moves.
bool is_whole(const c10::OperatorHandle& op) {
  return find_lowering(op) != nullptr && !op.hasTag(at::Tag::inplace_view) &&
         !op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         op.schema().name() != "aten::copy_" && op.schema().name() != "aten::_to_copy";
}

torch::Library* register_kernels_of(const std::string& name_space) {
  auto* library =
      new torch::Library(torch::Library::IMPL, name_space, DispatchKey::XLA, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with(name_space + "::")) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !is_whole(*op) || op->hasKernelForDispatchKey(DispatchKey::XLA)) continue;
    library->impl(c10::toString(name).c_str(), record_kernel(*op));
  }
  return library;
}

}  // namespace

/// Records each operator with a lowering as it is, also one that LibTorch would decompose for a
/// device without kernels. Of levin's own operators, exchanges between processes become nodes of
/// the program.
void register_kernels() {
  static const auto* aten = register_kernels_of("aten");
  static const auto* own = register_kernels_of("levin");
  static_cast<void>(aten);
  static_cast<void>(own);
}

TORCH_LIBRARY_IMPL(_, XLA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(_, SparseXLA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_sparse>());
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, library) {
  library.impl("embedding_backward", &embedding_backward);
}

TORCH_LIBRARY_IMPL(aten, XLA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("new_empty_strided", &new_empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("resize_", &resize);
  library.impl("as_strided_", &as_strided_in_place);
  library.impl("equal", &equal);
  library.impl("_neg_view", &negated_view);
  // The same elements in the same order: there is nothing to record.
  library.impl("detach", &at::native::detach);
  library.impl("alias", &at::native::alias);
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_type);
}

}  // namespace levin::xla
