#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>

#include <atomic>

#include "levin/base/check.h"
#include "levin/base/memory/refused_pointer.h"
#include "levin/base/random.h"
#include "levin/graph/meta/build_log_impl.h"

namespace levin::graph::meta {
namespace {

uint64_t next_order() {
  static std::atomic<uint64_t> count{0};
  return ++count;
}

void delete_contents(void* contents) { delete static_cast<Contents*>(contents); }

}  // namespace

Part Part::of(const at::Tensor& tensor) {
  return {.dtype = tensor.scalar_type(),
          .sizes = at::DimVector(tensor.sizes()),
          .strides = at::DimVector(tensor.strides()),
          .offset = tensor.storage_offset()};
}

size_t Part::reach() const {
  return at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype),
                                          static_cast<size_t>(offset));
}

bool Part::is_contiguous() const {
  int64_t expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim] != 1 && strides[dim] != expected) return false;
    expected *= sizes[dim];
  }
  return true;
}

BuildLog::BuildLog() : order(next_order()), seed(static_cast<uint64_t>(current_seed())) {}

Contents* contents_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_meta() || !tensor.has_storage()) return nullptr;
  // Past the checks: the storage refuses its pointer to everybody.
  at::DataPtr& pointer = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  return pointer.cast_context<Contents>(&delete_contents);
}

void attach(const at::Tensor& tensor, Contents contents) {
  auto owned = std::make_unique<Contents>(std::move(contents));
  tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks() =
      at::DataPtr(nullptr, owned.release(), &delete_contents, at::Device(at::kMeta));
}

void refuse_pointers(const at::Tensor& tensor, std::string text) {
  tensor.storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      std::move(text));
}

void allow_pointers(const at::Tensor& tensor) {
  levin::detail::give_pointer_again(*tensor.storage().unsafeGetStorageImpl());
}

std::string describe(const at::Tensor& tensor) {
  const Contents* contents = contents_of(tensor);
  const bool has_name = contents != nullptr && !contents->name.empty();
  return fmt::format("{}{} of {}", has_name ? contents->name + " " : "", c10::str(tensor.sizes()),
                     c10::toString(tensor.scalar_type()));
}

}  // namespace levin::graph::meta
