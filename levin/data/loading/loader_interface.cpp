#include "levin/data/loading/loader_interface.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>

#include "levin/base/check.h"

namespace levin::detail {
namespace {

constexpr const char* kSampleMask = "sample_mask";

/// Each sample of the batch once more, from the first on, until there are `size`.
Batch filled_up(const Batch& batch, int64_t size, const DataLoaderOptions& options) {
  const int64_t samples = batch.size();
  const at::Tensor which = at::arange(size, at::kLong).remainder(samples);
  Batch filled;
  for (const auto& [name, tensor] : batch) {
    const bool has_samples = tensor.dim() > 0 && tensor.size(0) == samples;
    filled.set(name, has_samples ? tensor.index_select(0, which.to(tensor.device())) : tensor);
  }
  for (const auto& [name, value] : options.padding_values) {
    filled[name].narrow(0, samples, size - samples).fill_(value);
  }
  return filled;
}

}  // namespace

bool LoaderImpl::next_padded(Batch& batch) {
  added_ = 0;
  if (!next(batch)) return false;
  const int64_t size = options_.batch_size;
  if (!options_.pad_last_batch || batch.empty()) return true;
  const c10::InferenceMode normal(false);  // inference tensors could not be trained on later
  const at::NoGradGuard no_grad;
  const int64_t samples = batch.size();
  for (const auto& [name, value] : options_.padding_values) static_cast<void>(batch[name]);
  if (samples < size) {
    batch = filled_up(batch, size, options_);
    batch.set(kSampleMask, at::arange(size, at::kLong).lt(samples));
    added_ = size - samples;
    return true;
  }
  if (!full_mask_.defined() || full_mask_.size(0) != samples) {
    full_mask_ = at::ones({samples}, at::kBool);
  }
  batch.set(kSampleMask, full_mask_);
  return true;
}

DataLoaderOptions checked(DataLoaderOptions options) {
  LEVIN_CHECK(options.batch_size > 0, "data.loader.batch_size", "got {}, wanted at least 1",
              options.batch_size);
  LEVIN_CHECK(options.num_workers >= 0, "data.loader.num_workers", "got {}, wanted 0 or more",
              options.num_workers);
  LEVIN_CHECK(options.prefetch_factor > 0, "data.loader.prefetch_factor",
              "got {}, wanted at least 1", options.prefetch_factor);
  LEVIN_CHECK(options.sampler == nullptr || !options.shuffle, "data.loader.sampler",
              "got a sampler and shuffle=true; the sampler sets the order, so set shuffle = false");
  LEVIN_CHECK(!options.drop_last || !options.pad_last_batch, "data.loader.pad_last_batch",
              "got drop_last and pad_last_batch, wanted one of them; a short last batch is either "
              "dropped or padded");
  check_pin_memory(options.pin_memory.value_or(false));
  return options;
}

void check_pin_memory(bool pin_memory) {
  LEVIN_CHECK(!pin_memory || at::hasCUDA(), "data.batch.pin_memory",
              "got pin_memory = true but there is no CUDA device; set pin_memory = false");
}

LoaderImpl::~LoaderImpl() = default;

}  // namespace levin::detail
