#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "levin/data/batch.h"
#include "levin/rows/rows.h"

namespace levin::text {

at::Tensor counted_labels(const Batch& batch, bool shifted) {
  at::Tensor counts = batch["labels"].ne(-100);
  if (!shifted) return counts.sum();
  const int64_t length = counts.size(-1) - 1;
  counts = counts.narrow(-1, 1, length);
  if (batch.contains("document")) {
    const at::Tensor& document = batch["document"];
    const at::Tensor here = document.narrow(-1, 1, length);
    counts = counts.logical_and(here.eq(document.narrow(-1, 0, length)).logical_and(here.ge(0)));
  }
  return counts.sum();
}

}  // namespace levin::text
