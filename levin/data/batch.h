#pragma once
// Batch: ordered, named tensors that a dataset returns and that a training step receives.
// A Dataset creates it, a DataLoader hands it out, and the steps of a Module read it.
//
//   Batch batch{{"image", images}, {"label", labels}};
//   auto logits = net->forward(batch["image"]);        // [batch.size(), 10]

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"

namespace levin {

/// Named tensors in a fixed order; dim 0 of each tensor counts the samples. Batch is a value type:
/// copies share the tensors.
class LEVIN_API Batch {
 public:
  using Field = std::pair<std::string, at::Tensor>;  ///< name and tensor

  Batch() = default;
  /// Creates a batch of these fields. Throws Error "data.batch.field" if two fields have the same
  /// name.
  Batch(std::initializer_list<Field> fields);

  /// Returns the tensor of this name. Throws Error "data.batch.field", which lists the names in the
  /// batch, if there is no such field.
  const at::Tensor& operator[](std::string_view name) const;
  /// Returns whether the batch has a field of this name.
  bool contains(std::string_view name) const;
  /// Returns the fields of a part, without its name: part("a") has the field "x" for "a/x". Batches
  /// of data::combined() have one part per loader. Throws Error "data.batch.field", which lists the
  /// names in the batch, if no name begins with `part` and a slash.
  Batch part(std::string_view part) const;
  /// Returns whether the batch has a part of this name.
  bool has_part(std::string_view part) const;
  /// Appends a field, or replaces the tensor of the field that has this name.
  void set(std::string_view name, at::Tensor tensor);

  /// Number of samples: size(0) of the first tensor. It is 0 for an empty batch and if the first
  /// tensor is a scalar.
  int64_t size() const;
  /// Returns whether the batch has no fields.
  bool empty() const { return fields_.empty(); }
  /// All fields in their order.
  const std::vector<Field>& fields() const { return fields_; }
  /// Iterator over the fields.
  std::vector<Field>::const_iterator begin() const { return fields_.begin(); }
  /// End of the fields.
  std::vector<Field>::const_iterator end() const { return fields_.end(); }

  /// Returns the batch with all tensors on this device. A tensor that is there already is shared,
  /// not copied. With non_blocking, copies from pinned memory are asynchronous to the host.
  Batch to(at::Device device, bool non_blocking = false) const;
  /// Returns a copy in pinned (page-locked) memory. Throws Error "data.batch.pin_memory" if there
  /// is no CUDA device.
  Batch pin_memory() const;
  /// Returns samples [start, start + length) as views. Throws Error "data.batch.narrow" if the
  /// range is not within the batch.
  Batch narrow(int64_t start, int64_t length) const;

 private:
  std::vector<Field> fields_;
};

namespace data {

/// One sample: a batch whose tensors have no batch dimension.
using Sample = Batch;

}  // namespace data
}  // namespace levin
