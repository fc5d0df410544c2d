#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "levin/checkpoint/saving/own_pieces_impl.h"
#include "levin/files/checksum.h"
#include "levin/files/scratch/scratch_file.h"

namespace levin::detail {
namespace {

constexpr int64_t kReadWhole = int64_t{1} << 14;  // bytes
constexpr int64_t kSamples = 16;                  // samples of a larger tensor
constexpr int64_t kSampleBytes = 256;
constexpr int64_t kSlice = 1;  // the value of a part
constexpr int64_t kNone = 2;   // and, with the rank's number, of what cannot be compared

bool is_large(const TensorPlace& place) { return place.end - place.begin > kReadWhole; }

/// The checksum of a tensor. Of a large one, it covers samples at even distances, ends included.
uint64_t sampled(const at::Tensor& elements) {
  const auto width = static_cast<int64_t>(elements.element_size());
  const int64_t bytes = elements.numel() * width;
  if (bytes <= kReadWhole) return files::xxh3(bytes_of(elements.cpu()));
  const at::Tensor all = elements.view(at::kByte);
  const int64_t last = bytes - kSampleBytes;
  std::vector<at::Tensor> samples;
  const auto place = elements.is_cpu() ? files::scratch_place(all.const_data_ptr()) : std::nullopt;
  for (int64_t i = 0; i < kSamples; ++i) {
    const int64_t first = i + 1 < kSamples ? last / (kSamples - 1) * i : last;
    if (place) place->file->populate(place->begin + first, kSampleBytes, /*to_write=*/false);
    samples.push_back(all.narrow(0, first, kSampleBytes));
  }
  return files::xxh3(bytes_of(at::cat(samples).cpu()));  // one copy from a GPU
}

int64_t value_of(const State::Value* value, const TensorPlace& place, int64_t rank) {
  if (value != nullptr && std::holds_alternative<TensorSlice>(*value)) return kSlice;
  const auto* tensor = value == nullptr ? nullptr : std::get_if<at::Tensor>(value);
  const bool is_it = tensor != nullptr && has_type_of(*tensor, place) &&
                     std::ranges::equal(tensor->sizes(), place.shape);
  const bool is_readable = is_it && (tensor->is_cpu() || tensor->is_cuda());
  if (!is_readable) return kNone + rank;
  // Elements in the order of the memory do as well, and copy nothing.
  const bool is_dense =
      tensor->is_non_overlapping_and_dense() && !tensor->is_conj() && !tensor->is_neg();
  const at::Tensor elements =
      is_dense ? tensor->detach().as_strided({tensor->numel()}, {1}) : elements_of(*tensor);
  return static_cast<int64_t>(sampled(elements));
}

}  // namespace

at::Tensor values_of(const SavePlan& plan, const Sources& own, int64_t rank) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> values;
  for_each_tensor(plan, [&](size_t file, const TensorPlace& place) {
    values.push_back(value_of(planned_value(own, plan.files[file], place), place, rank));
  });
  at::Tensor tensor =
      at::zeros({std::ssize(values)}, at::TensorOptions(at::kLong).device(at::kCPU));
  std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

std::vector<bool> held_by_all(const SavePlan& plan, const std::vector<at::Tensor>& values) {
  std::vector<bool> held;
  std::vector<size_t> large;
  for_each_tensor(plan, [&](size_t, const TensorPlace& place) {
    const size_t number = held.size();
    const auto at = [&](const at::Tensor& of) { return of.const_data_ptr<int64_t>()[number]; };
    const int64_t first = at(values.front());
    held.push_back(std::ranges::all_of(values, [&](const auto& one) { return at(one) == first; }));
    if (is_large(place) && first != kSlice) large.push_back(number);
  });
  const bool same_step = std::ranges::all_of(large, [&](size_t number) { return held[number]; });
  for (const size_t number : large) held[number] = same_step;
  return held;
}

}  // namespace levin::detail
