#include "levin/models/generate/kept_cache.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <utility>

#include "levin/models/generate/held_cache_impl.h"

namespace levin::models {

KeptCache::KeptCache() = default;
KeptCache::~KeptCache() = default;
KeptCache::KeptCache(KeptCache&&) noexcept = default;
KeptCache& KeptCache::operator=(KeptCache&&) noexcept = default;

int64_t KeptCache::size() const { return held_ ? held_->cache.length() : 0; }
void KeptCache::forget() { held_.reset(); }

int64_t KeptCache::Held::common(const at::Tensor& prompt) const {
  const int64_t most = std::min(ids.size(0), prompt.size(0) - 1);
  const auto differs = ids.narrow(0, 0, most).ne(prompt.narrow(0, 0, most));
  return differs.any().item<bool>() ? differs.to(at::kByte).argmax().item<int64_t>() : most;
}

}  // namespace levin::models
