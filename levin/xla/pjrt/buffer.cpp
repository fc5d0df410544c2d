#include "levin/xla/pjrt/buffer.h"

#include "levin/base/check.h"
#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt {

void Buffer::release() noexcept {
  LEVIN_PJRT_ARGS(PJRT_Buffer_Destroy, args);
  args.buffer = buffer_;
  PJRT_Error* error = origin_->api->PJRT_Buffer_Destroy(&args);
  if (error != nullptr) detail::free_error(origin_->api, error);
  buffer_ = nullptr;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  if (buffer_ != nullptr) release();
  buffer_ = std::exchange(other.buffer_, nullptr);
  origin_ = std::move(other.origin_);
  return *this;
}

const PJRT_Api* Buffer::api() const {
  LEVIN_CHECK(buffer_ != nullptr, "xla.buffer",
              "the buffer is empty; wanted one that was uploaded or that a program returned");
  return origin_->api;
}

// Plugins say that a buffer is gone in words of their own.
void Buffer::check(PJRT_Error* error) const {
  if (error == nullptr) [[likely]]
    return;
  if (is_deleted()) {
    detail::free_error(api(), error);
    LEVIN_FAIL("xla.buffer",
               "the buffer was already donated to a program; name its argument in `kept`, or read "
               "the buffer that the program returned");
  }
  origin_->fail(error);
}

at::IntArrayRef Buffer::sizes() const {
  LEVIN_PJRT_ARGS(PJRT_Buffer_Dimensions, args);
  args.buffer = buffer_;
  check(api()->PJRT_Buffer_Dimensions(&args));
  return {args.dims, args.num_dims};
}

int Buffer::type() const {
  LEVIN_PJRT_ARGS(PJRT_Buffer_ElementType, args);
  args.buffer = buffer_;
  check(api()->PJRT_Buffer_ElementType(&args));
  return args.type;
}

at::ScalarType Buffer::dtype() const {
  return detail::dtype_of(static_cast<PJRT_Buffer_Type>(type()));
}

int64_t Buffer::device_id() const {
  LEVIN_PJRT_ARGS(PJRT_Buffer_Device, args);
  args.buffer = buffer_;
  check(api()->PJRT_Buffer_Device(&args));
  LEVIN_PJRT_ARGS(PJRT_Device_GetDescription, get);
  get.device = args.device;
  check(api()->PJRT_Device_GetDescription(&get));
  LEVIN_PJRT_ARGS(PJRT_DeviceDescription_Id, id);
  id.device_description = get.device_description;
  check(api()->PJRT_DeviceDescription_Id(&id));
  return id.id;
}

int64_t Buffer::num_bytes() const {
  LEVIN_PJRT_ARGS(PJRT_Buffer_OnDeviceSizeInBytes, args);
  args.buffer = buffer_;
  check(api()->PJRT_Buffer_OnDeviceSizeInBytes(&args));
  return static_cast<int64_t>(args.on_device_size_in_bytes);
}

bool Buffer::is_deleted() const {
  LEVIN_PJRT_ARGS(PJRT_Buffer_IsDeleted, args);
  args.buffer = buffer_;
  PJRT_Error* error = api()->PJRT_Buffer_IsDeleted(&args);
  if (error != nullptr) origin_->fail(error);
  return args.is_deleted;
}

PJRT_Event* Buffer::ready_event() const {
  LEVIN_PJRT_ARGS(PJRT_Buffer_ReadyEvent, args);
  args.buffer = buffer_;
  check(api()->PJRT_Buffer_ReadyEvent(&args));
  return args.event;
}

bool Buffer::is_ready() const {
  PJRT_Event* event = ready_event();
  const bool ready = detail::is_ready(api(), event);
  detail::free_event(api(), event);
  return ready;
}

void Buffer::await() const { check(detail::await(api(), ready_event())); }

}  // namespace levin::xla::pjrt
