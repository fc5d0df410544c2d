#pragma once
// Batch: ordered, named tensors, what a step is given.
// The first thing on the data's way: a Dataset makes it, the module's steps read it.
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

/// A value type whose tensors are shared. Every tensor has the samples along dim 0.
class LEVIN_API Batch {
 public:
  using Field = std::pair<std::string, at::Tensor>;

  Batch() = default;
  /// Throws Error "data.batch.field" when two fields have one name.
  Batch(std::initializer_list<Field> fields);

  /// Throws Error "data.batch.field" that lists the names there are.
  const at::Tensor& operator[](std::string_view name) const;
  bool contains(std::string_view name) const;
  /// Adds the tensor at the end, or replaces the one of that name.
  void set(std::string_view name, at::Tensor tensor);

  /// Number of samples: the first tensor's size(0); 0 for an empty batch or a scalar field.
  int64_t size() const;
  bool empty() const { return fields_.empty(); }
  const std::vector<Field>& fields() const { return fields_; }
  std::vector<Field>::const_iterator begin() const { return fields_.begin(); }
  std::vector<Field>::const_iterator end() const { return fields_.end(); }

  /// The batch on that device; the same tensors where they are there already. non_blocking copies
  /// from pinned memory run beside the host.
  Batch to(at::Device device, bool non_blocking = false) const;
  /// Copies in page-locked memory. Throws Error "data.batch.pin_memory" where there is no CUDA.
  Batch pin_memory() const;
  /// Samples [start, start + length), as views. Throws Error "data.batch.narrow" beyond the end.
  Batch narrow(int64_t start, int64_t length) const;

 private:
  std::vector<Field> fields_;
};

namespace data {

/// One sample: a batch without the batch dim.
using Sample = Batch;

}  // namespace data
}  // namespace levin
