// Client::upload: how long the plugin reads the tensor, and what keeps it until then.
#include "levin/base/check.h"
#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt {
namespace {

using detail::Doing;

// XLA reads a CPU tensor in place only from such an address (cpu_function_runtime's MinAlign).
constexpr uintptr_t kSharedAlignment = 64;

/// A tensor that the plugin still reads.
struct Lent {
  at::Tensor tensor;
  const PJRT_Api* api;
  PJRT_Event* done;
};

void give_back(PJRT_Error* error, void* lent) {
  const std::unique_ptr<Lent> owned(static_cast<Lent*>(lent));
  // The buffer's own event reports the error.
  if (error != nullptr) detail::free_error(owned->api, error);
  detail::free_event(owned->api, owned->done);
}

void keep_until(const PJRT_Api* api, PJRT_Event* done, const at::Tensor& tensor) {
  if (done == nullptr) return;
  if (detail::is_ready(api, done)) return detail::free_event(api, done);
  auto lent = std::make_unique<Lent>(tensor, api, done);
  LEVIN_PJRT_ARGS(PJRT_Event_OnReady, args);
  args.event = done;
  args.callback = &give_back;
  args.user_arg = lent.get();
  detail::check(api, api->PJRT_Event_OnReady(&args), Doing::kTransfer, "an upload");
  args.user_arg = lent.release();  // give_back owns it
}

PJRT_HostBufferSemantics semantics_of(HostMemory memory, const void* data, bool on_cpu) {
  if (memory == HostMemory::kDuringCall) return PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  const bool is_aligned = reinterpret_cast<uintptr_t>(data) % kSharedAlignment == 0;
  return memory == HostMemory::kShared && on_cpu && is_aligned
             ? PJRT_HostBufferSemantics_kImmutableZeroCopy
             : PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
}

}  // namespace

namespace detail {

void check_host_tensor(const at::Tensor& tensor, const char* role) {
  LEVIN_CHECK(tensor.defined(), "xla.tensor", "the {} is undefined, wanted a tensor", role);
  LEVIN_CHECK(tensor.device().is_cpu(), "xla.tensor",
              "the {} is on {}, wanted a tensor on the CPU; call .cpu() on it", role,
              tensor.device().str());
  LEVIN_CHECK(tensor.layout() == at::kStrided && tensor.is_contiguous(), "xla.tensor",
              "the {} is not dense, wanted a contiguous tensor; call .contiguous() on it", role);
  LEVIN_CHECK(!tensor.is_conj() && !tensor.is_neg(), "xla.tensor",
              "the {} is a lazy conjugate or negative; call .resolve_conj().resolve_neg() on it",
              role);
}

}  // namespace detail

Buffer Client::upload(const at::Tensor& tensor, int64_t device, HostMemory memory) const {
  detail::check_host_tensor(tensor, "tensor to upload");
  const PJRT_Api* api = impl_->api;
  const at::IntArrayRef sizes = tensor.sizes();
  LEVIN_PJRT_ARGS(PJRT_Client_BufferFromHostBuffer, args);
  args.client = impl_->client;
  args.data = tensor.const_data_ptr();
  args.type = detail::type_of(tensor.scalar_type());
  args.dims = sizes.data();
  args.num_dims = sizes.size();
  args.host_buffer_semantics = semantics_of(memory, args.data, impl_->on_cpu);
  args.device = handle_of(device);
  detail::check(api, api->PJRT_Client_BufferFromHostBuffer(&args), Doing::kTransfer, "an upload");
  Buffer buffer(args.buffer, uploads_);
  keep_until(api, args.done_with_host_buffer, tensor);
  return buffer;
}

}  // namespace levin::xla::pjrt
