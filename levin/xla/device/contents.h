#pragma once
// Contents: what a storage of the device "xla" holds. A tensor's storage owns one.

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <memory>

#include "levin/xla/pjrt/buffer.h"
#include "levin/xla/stablehlo/builder.h"

namespace levin::xla {

struct RuntimeImpl;

struct Contents {
  explicit Contents(std::shared_ptr<RuntimeImpl> owner);
  ~Contents();
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;

  /// Returns the contents of a tensor on the device.
  static Contents& of(const at::Tensor& tensor);
  /// A tensor without contents yet.
  static at::Tensor make_tensor(const std::shared_ptr<RuntimeImpl>& owner, at::IntArrayRef sizes,
                                at::IntArrayRef strides, at::ScalarType dtype);
  /// The storage of a tensor in another way.
  static at::Tensor view_of(const at::Tensor& tensor, at::IntArrayRef sizes,
                            at::IntArrayRef strides, int64_t offset, at::ScalarType dtype);
  /// Gives the tensor other memory, not yet written, of those sizes. Views of the old one stay.
  static void renew(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides);
  /// The storage as the tensor that it was made for.
  at::Tensor base() const;
  bool is_base(const at::Tensor& tensor) const;

  std::shared_ptr<RuntimeImpl> runtime;  ///< also when the device has been closed
  c10::StorageImpl* storage = nullptr;   ///< the storage that owns this
  at::DimVector sizes, strides;
  at::ScalarType dtype = at::kFloat;
  Contents *made_before = nullptr, *made_after = nullptr;  ///< in LiveContents
  /// The number of the trace that met this memory last, and the memory's place in it.
  uint64_t trace = 0;
  uint32_t place = 0;
  /// One for each device of this process. None: nothing was written yet, or it is pending.
  c10::SmallVector<pjrt::Buffer, 1> buffers;
  int64_t split_dim = -1;   ///< -1: each device has all of it
  bool is_pending = false;  ///< recorded, not yet run
  bool is_lost = false;     ///< the program that was to give it failed
};

/// Throws Error "xla.lost".
void check_not_lost(const Contents& contents);

/// All contents, in the order of their making: an intrusive list, since each operator makes one and
/// drops one.
class LiveContents {
 public:
  class Iterator {
   public:
    explicit Iterator(Contents* at) : at_(at) {}
    Contents* operator*() const { return at_; }
    Iterator& operator++() {
      at_ = at_->made_after;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    Contents* at_;
  };
  Iterator begin() const { return Iterator(first_); }
  static Iterator end() { return Iterator(nullptr); }

  void add(Contents& made);
  void remove(Contents& contents);
  /// The results of a program that failed are lost; tensors that it was to change are as they were.
  void lose_pending() noexcept;

 private:
  Contents *first_ = nullptr, *last_ = nullptr;
};

}  // namespace levin::xla
