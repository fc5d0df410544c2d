#include <fmt/format.h>

#include <utility>

#include "levin/base/check.h"
#include "levin/checkpoint/saving/weight_files_impl.h"
#include "levin/checkpoint/tensor_file.h"
#include "levin/files/safetensors_dtype.h"

namespace levin::detail {
namespace {

int64_t bytes_of(const files::TensorDescription& tensor) {
  int64_t bytes = static_cast<int64_t>(at::elementSize(*files::dtype_of_safetensors(tensor.dtype)));
  for (const int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

}  // namespace

std::vector<WeightFile> weight_files(const std::string& model, const State& weights,
                                     int64_t max_shard_bytes) {
  LEVIN_CHECK(max_shard_bytes >= 1, "checkpoint.shard", "got {} bytes for a file, wanted some",
              max_shard_bytes);
  std::vector<WeightFile> all(1);
  int64_t bytes = 0;
  for (const auto& [name, value] : weights.values()) {
    files::TensorDescription tensor = description_of(weights, name);
    const int64_t more = bytes_of(tensor);
    if (bytes > 0 && bytes + more > max_shard_bytes) {
      all.emplace_back();
      bytes = 0;
    }
    all.back().tensors.push_back(std::move(tensor));
    bytes += more;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].name = all.size() == 1
                      ? model + ".safetensors"
                      : fmt::format("{}-{:05}-of-{:05}.safetensors", model, i + 1, all.size());
  }
  return all;
}

}  // namespace levin::detail
