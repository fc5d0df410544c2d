// A buffer's way back to the host.
#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include <bit>
#include <cstring>

#include "levin/base/check.h"
#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt {
namespace {

/// A tensor's own order of elements, the last dimension next to each other; a device may keep
/// another one.
struct RowMajor {
  c10::SmallVector<int64_t, 8> minor_to_major;
  PJRT_Buffer_MemoryLayout layout = {};

  explicit RowMajor(size_t num_dims) {
    for (size_t dim = num_dims; dim > 0; --dim)
      minor_to_major.push_back(static_cast<int64_t>(dim) - 1);
    layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
    layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
    layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
    layout.tiled.minor_to_major = minor_to_major.data();
    layout.tiled.minor_to_major_size = minor_to_major.size();
  }
};

bool is_row_major(const PJRT_Api* api, PJRT_Buffer* buffer) {
  LEVIN_PJRT_ARGS(PJRT_Buffer_GetMemoryLayout, args);
  args.buffer = buffer;
  PJRT_Error* error = api->PJRT_Buffer_GetMemoryLayout(&args);
  if (error != nullptr) {
    detail::free_error(api, error);
    return false;
  }
  const auto& tiled = args.layout.tiled;
  if (args.layout.type != PJRT_Buffer_MemoryLayout_Type_Tiled || tiled.num_tiles != 0) return false;
  for (size_t i = 0; i < tiled.minor_to_major_size; ++i) {
    if (tiled.minor_to_major[i] != static_cast<int64_t>(tiled.minor_to_major_size - 1 - i))
      return false;
  }
  return true;
}

}  // namespace

void Buffer::check_fits(const at::Tensor& out) const {
  detail::check_host_tensor(out, "tensor to download to");
  LEVIN_CHECK(out.sizes() == sizes() && out.scalar_type() == dtype(), "xla.tensor",
              "the tensor to download to has sizes {} of {}, wanted {} of {}",
              c10::str(out.sizes()), c10::toString(out.scalar_type()), c10::str(sizes()),
              c10::toString(dtype()));
}

at::Tensor Buffer::download() const {
  const at::Tensor tensor = at::empty(sizes(), dtype());
  download_to(tensor);
  return tensor;
}

void Buffer::download_to(const at::Tensor& out) const {
  check_fits(out);
  // A CPU's memory is read where it lies: the plugin would hand the copy to a thread of its own,
  // which takes 15 us.
  if (!origin_->client->on_cpu || !is_row_major(api(), buffer_)) {
    start_download_to(out).wait();
    return;
  }
  await();
  if (out.nbytes() == 0) return;
  LEVIN_PJRT_ARGS(PJRT_Buffer_UnsafePointer, args);
  args.buffer = buffer_;
  check(api()->PJRT_Buffer_UnsafePointer(&args));
  std::memcpy(out.mutable_data_ptr(), std::bit_cast<const void*>(args.buffer_pointer),
              out.nbytes());
}

Download Buffer::start_download() const { return start_download_to(at::empty(sizes(), dtype())); }

Download Buffer::start_download_to(const at::Tensor& out) const {
  check_fits(out);
  RowMajor order(static_cast<size_t>(out.dim()));
  LEVIN_PJRT_ARGS(PJRT_Buffer_ToHostBuffer, args);
  args.src = buffer_;
  args.host_layout = &order.layout;
  args.dst = out.mutable_data_ptr();
  args.dst_size = out.nbytes();
  check(api()->PJRT_Buffer_ToHostBuffer(&args));
  return {out, args.event, origin_};
}

Download::Download(at::Tensor tensor, PJRT_Event* event,
                   std::shared_ptr<const detail::Origin> origin)
    : tensor_(std::move(tensor)), event_(event), origin_(std::move(origin)) {}

Download::~Download() { finish(); }

Download::Download(Download&& other) noexcept
    : tensor_(std::move(other.tensor_)),
      event_(std::exchange(other.event_, nullptr)),
      origin_(std::move(other.origin_)) {}

Download& Download::operator=(Download&& other) noexcept {
  if (this == &other) return *this;
  finish();
  tensor_ = std::move(other.tensor_);
  event_ = std::exchange(other.event_, nullptr);
  origin_ = std::move(other.origin_);
  return *this;
}

// The plugin writes into the tensor until its event says that it has.
void Download::finish() noexcept {
  if (event_ == nullptr) return;
  PJRT_Error* error = detail::await(origin_->api, std::exchange(event_, nullptr));
  if (error != nullptr) detail::free_error(origin_->api, error);
}

bool Download::is_ready() const {
  return event_ == nullptr || detail::is_ready(origin_->api, event_);
}

const at::Tensor& Download::wait() {
  LEVIN_CHECK(tensor_.defined(), "xla.buffer", "the download failed before, or was moved from");
  if (event_ == nullptr) return tensor_;
  PJRT_Error* error = detail::await(origin_->api, std::exchange(event_, nullptr));
  if (error != nullptr) {
    tensor_.reset();
    origin_->fail(error);
  }
  return tensor_;
}

}  // namespace levin::xla::pjrt
