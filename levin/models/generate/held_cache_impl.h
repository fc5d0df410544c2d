#pragma once
// What a KeptCache has between two calls.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "levin/models/generate/kept_cache.h"
#include "levin/models/layers/cache.h"

namespace levin::models {

struct KeptCache::Held {
  const void* net;  // whose it is, and its embedding's type and device
  at::TensorOptions options;
  at::Tensor ids;  // int64 [tokens] that are in the cache, on the CPU
  Cache cache;

  /// Tokens at the prompt's beginning that are here. prompt: int64 [T] on the CPU, of which the last has to
  /// be computed in any case.
  int64_t common(const at::Tensor& prompt) const;
};

}  // namespace levin::models
