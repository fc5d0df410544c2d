#include "levin/files/idx.h"

#include <ATen/ops/from_blob.h>

#include <memory>

#include "levin/data/sources/sources.h"

namespace levin::data {
namespace {

at::ScalarType dtype_of(files::IdxType type) {
  switch (type) {
    case files::IdxType::kU8:
      return at::kByte;
    case files::IdxType::kI8:
      return at::kChar;
    case files::IdxType::kI16:
      return at::kShort;
    case files::IdxType::kI32:
      return at::kInt;
    case files::IdxType::kF32:
      return at::kFloat;
    case files::IdxType::kF64:
      return at::kDouble;
  }
  return at::kByte;
}

}  // namespace

at::Tensor read_idx(const std::string& path) {
  auto array = std::make_shared<files::IdxArray>(files::read_idx(path));
  void* bytes = array->data.data();
  const auto dtype = dtype_of(array->type);
  const at::IntArrayRef sizes = array->shape;
  // The deleter owns the array, so the tensor is its bytes and no copy of them.
  return at::from_blob(bytes, sizes, [array](void*) {}, at::TensorOptions(dtype));
}

}  // namespace levin::data
