#include "levin/checkpoint/saving/planned_tensors_impl.h"
#include "levin/checkpoint/tensor_file.h"
#include "levin/files/safetensors_dtype.h"

namespace levin::detail {

void for_each_tensor(const SavePlan& plan,
                     const std::function<void(size_t file, const TensorPlace& place)>& visit) {
  for (size_t i = 0; i < plan.files.size(); ++i) {
    for (const TensorPlace& place : plan.files[i].tensors) visit(i, place);
  }
}

const State::Value* planned_value(const Sources& own, const PlannedFile& file,
                                  const TensorPlace& place) {
  const auto source = own.find(file.source);
  if (source == own.end()) return nullptr;
  const auto found = source->second.values().find(place.name);
  return found == source->second.values().end() ? nullptr : &found->second;
}

bool has_type_of(const at::Tensor& tensor, const TensorPlace& place) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         files::safetensors_dtype(tensor.scalar_type()) == place.dtype;
}

at::Tensor elements_of(const at::Tensor& tensor) {
  const bool in_pieces = tensor.is_cpu() || tensor.is_cuda();
  const at::Tensor plain_one =
      in_pieces ? tensor.detach().resolve_conj().resolve_neg().contiguous() : plain(tensor);
  return plain_one.view({-1});
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()),
          static_cast<size_t>(tensor.nbytes())};
}

}  // namespace levin::detail
