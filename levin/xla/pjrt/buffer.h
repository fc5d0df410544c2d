#pragma once
// Buffer: a tensor on a device of a Client. An argument or a result of Executable::execute.
//
//   const pjrt::Buffer x = client.upload(tensor);
//   const at::Tensor back = x.download();             // waits
//   pjrt::Download later = x.start_download();        // does not
//   ... later.wait()

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "levin/base/export.h"

struct PJRT_Api;
struct PJRT_Buffer;
struct PJRT_Error;
struct PJRT_Event;

namespace levin::xla::pjrt {

namespace detail {
struct Origin;  // the client, and the program that made a buffer
}

/// A copy to the host that has been started. Destroying it waits for the end of the copy.
class LEVIN_API Download {
 public:
  Download(at::Tensor tensor, PJRT_Event* event, std::shared_ptr<const detail::Origin> origin);
  ~Download();
  Download(Download&& other) noexcept;
  Download& operator=(Download&& other) noexcept;

  /// Returns whether wait() returns (or throws) at once.
  bool is_ready() const;
  /// The tensor, when it is there. Throws "xla.execute" with the name of the program that should
  /// have made it, "xla.memory", "xla.transfer".
  const at::Tensor& wait();

 private:
  void finish() noexcept;

  at::Tensor tensor_;
  PJRT_Event* event_ = nullptr;  // none once it was waited for
  std::shared_ptr<const detail::Origin> origin_;
};

/// Owns the memory on the device; what is still to read or write it keeps it until it is done. A
/// call on an empty buffer throws "xla.buffer".
class LEVIN_API Buffer {
 public:
  Buffer() = default;
  Buffer(PJRT_Buffer* buffer, std::shared_ptr<const detail::Origin> origin) noexcept
      : buffer_(buffer), origin_(std::move(origin)) {}
  ~Buffer() {
    if (buffer_ != nullptr) release();
  }
  Buffer(Buffer&& other) noexcept
      : buffer_(std::exchange(other.buffer_, nullptr)), origin_(std::move(other.origin_)) {}
  Buffer& operator=(Buffer&& other) noexcept;

  /// Returns whether there is a buffer; it may be deleted.
  explicit operator bool() const { return buffer_ != nullptr; }
  /// Valid as long as the buffer.
  at::IntArrayRef sizes() const;
  at::ScalarType dtype() const;
  /// PJRT_Buffer_Type: cheaper than dtype(), for comparing.
  int type() const;
  /// The device's id (Device::id).
  int64_t device_id() const;
  /// On the device, padding counted.
  int64_t num_bytes() const;

  /// Returns whether the values are there, or will never be.
  bool is_ready() const;
  /// Waits for its values. Throws "xla.execute" with the name of the program that should have made
  /// them, "xla.memory", "xla.transfer", "xla.buffer" (deleted).
  void await() const;
  /// Returns whether a program has taken the buffer over (donation).
  bool is_deleted() const;

  /// The values as a new CPU tensor; waits. Throws as await().
  at::Tensor download() const;
  /// Into `out`: contiguous, on the CPU, of the same sizes and dtype ("xla.tensor"); waits.
  void download_to(const at::Tensor& out) const;
  /// The same without waiting. The buffer may go meanwhile, the tensor must not be touched.
  Download start_download() const;
  Download start_download_to(const at::Tensor& out) const;

  PJRT_Buffer* get() const { return buffer_; }

 private:
  void release() noexcept;
  const PJRT_Api* api() const;
  PJRT_Event* ready_event() const;
  void check_fits(const at::Tensor& out) const;
  void check(PJRT_Error* error) const;

  PJRT_Buffer* buffer_ = nullptr;
  std::shared_ptr<const detail::Origin> origin_;
};

}  // namespace levin::xla::pjrt
