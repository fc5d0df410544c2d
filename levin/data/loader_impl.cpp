#include "levin/data/loader_impl.h"

#include <ATen/Context.h>

#include "levin/base/check.h"

namespace levin::detail {

DataLoaderOptions checked(DataLoaderOptions options) {
  LEVIN_CHECK(options.batch_size > 0, "data.loader.batch_size", "got {}, wanted at least 1",
              options.batch_size);
  LEVIN_CHECK(options.num_workers >= 0, "data.loader.num_workers", "got {}, wanted 0 or more",
              options.num_workers);
  LEVIN_CHECK(options.prefetch_factor > 0, "data.loader.prefetch_factor",
              "got {}, wanted at least 1", options.prefetch_factor);
  LEVIN_CHECK(options.sampler == nullptr || !options.shuffle, "data.loader.sampler",
              "got a sampler and shuffle=true; the sampler gives the order, so leave shuffle off");
  check_pin_memory(options.pin_memory.value_or(false));
  return options;
}

void check_pin_memory(bool pin_memory) {
  LEVIN_CHECK(!pin_memory || at::hasCUDA(), "data.batch.pin_memory",
              "pinned memory was asked for, but there is no CUDA device; leave pin_memory off");
}

LoaderImpl::~LoaderImpl() = default;

}  // namespace levin::detail
