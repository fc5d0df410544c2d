#include "levin/models/layers/cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace levin::models {
namespace {

constexpr int64_t kFirstSlots = 64;  // beside the prompt's

/// Tokens that a layer keeps.
int64_t slots_of(int64_t window, int64_t capacity) {
  return window > 0 ? std::min(window, capacity) : capacity;
}

/// The last tokens of x, dim `dim`, each in the slot position % slots.
void place_last(const at::Tensor& x, int64_t dim, const at::Tensor& slots) {
  const int64_t length = x.size(dim), count = slots.size(dim);
  const int64_t kept = std::min(length, count), first = length - kept;
  const int64_t begin = first % count, straight = std::min(kept, count - begin);
  slots.narrow(dim, begin, straight).copy_(x.narrow(dim, first, straight));
  if (kept > straight)
    slots.narrow(dim, 0, kept - straight).copy_(x.narrow(dim, first + straight, kept - straight));
}

}  // namespace

void LayerCache::fill(const at::Tensor& key, const at::Tensor& value, int64_t window,
                      int64_t capacity) {
  window_ = window;
  most_ = slots_of(window, capacity);
  length_ = key.size(1);
  const int64_t slots = std::min(most_, length_ + kFirstSlots);
  const auto make = [&](const at::Tensor& x) {
    const auto memory = at::empty({x.size(0), x.size(2), slots, x.size(3)}, x.options());
    place_last(x.transpose(1, 2), 2, memory);
    return memory;
  };
  key_ = make(key);
  value_ = make(value);
}

void LayerCache::reserve(int64_t slots) {
  const auto grown = [&](const at::Tensor& x) {
    const auto memory = at::empty({x.size(0), x.size(1), slots, x.size(3)}, x.options());
    memory.narrow(2, 0, x.size(2)).copy_(x);
    return memory;
  };
  key_ = grown(key_);
  value_ = grown(value_);
}

LayerCache::View LayerCache::append(const at::Tensor& key, const at::Tensor& value) {
  TORCH_INTERNAL_ASSERT(key_.defined(), "a cache is filled before it goes on");
  if (key.size(1) > 1) return append_several(key, value);
  if (length_ >= key_.size(2) && key_.size(2) < most_) reserve(std::min(most_, 2 * length_));
  const int64_t slot = length_ % most_;
  ++length_;
  key_.select(2, slot).copy_(key.squeeze(1));
  value_.select(2, slot).copy_(value.squeeze(1));
  const int64_t seen = std::min(length_, most_);
  return {key_.narrow(2, 0, seen), value_.narrow(2, 0, seen)};
}

LayerCache::View LayerCache::append_several(const at::Tensor& key, const at::Tensor& value) {
  const int64_t count = key.size(1), end = length_ + count;
  if (end <= most_) {
    if (end > key_.size(2)) reserve(std::min(most_, std::max(2 * length_, end + kFirstSlots)));
    key_.narrow(2, length_, count).copy_(key.transpose(1, 2));
    value_.narrow(2, length_, count).copy_(value.transpose(1, 2));
    length_ = end;
    return {key_.narrow(2, 0, end), value_.narrow(2, 0, end)};
  }
  // The ring goes round: what was there is put in its order, and the last of all stay.
  const int64_t seen = std::min(length_, most_), slots = key_.size(2);
  const auto all = [&](const at::Tensor& ring, const at::Tensor& more) {
    const int64_t oldest = length_ > most_ ? length_ % most_ : 0;
    return at::cat(
        {ring.narrow(2, oldest, seen - oldest), ring.narrow(2, 0, oldest), more.transpose(1, 2)},
        2);
  };
  const View view{all(key_, key), all(value_, value)};
  if (slots < most_) reserve(most_);
  const int64_t kept = std::min(most_, seen + count), first = end - kept;
  for (const auto& [from, ring] : {std::pair(view.key, key_), std::pair(view.value, value_)}) {
    const auto last = from.narrow(2, from.size(2) - kept, kept);
    const int64_t begin = first % most_, straight = std::min(kept, most_ - begin);
    ring.narrow(2, begin, straight).copy_(last.narrow(2, 0, straight));
    ring.narrow(2, 0, kept - straight).copy_(last.narrow(2, straight, kept - straight));
  }
  length_ = end;
  return view;
}

void LayerCache::allow(int64_t capacity) { most_ = std::max(most_, slots_of(window_, capacity)); }

at::Tensor Cache::of_prompts(int64_t slots, at::ScalarType dtype) const {
  const auto padded = prompt_mask_ == 0;  // [B, T]
  const auto added = at::zeros(padded.sizes(), padded.options().dtype(dtype))
                         .masked_fill(padded, -std::numeric_limits<double>::infinity());
  const auto made = at::zeros({padded.size(0), slots}, added.options());
  place_last(added, 1, made);
  return made.unsqueeze(1).unsqueeze(1);
}

at::Tensor Cache::mask(int64_t window, at::ScalarType dtype) {
  if (!prompt_mask_.defined()) return {};
  const int64_t slots = slots_of(window, capacity_), seen = std::min(length_ + 1, slots);
  auto found = std::ranges::find_if(masks_, [&](const Mask& mask) {
    return mask.slots == slots && mask.added.scalar_type() == dtype;
  });
  if (found == masks_.end()) {
    TORCH_INTERNAL_ASSERT(length_ == prompt_mask_.size(1), "a mask is made with the first token");
    found = masks_.insert(masks_.end(), {slots, of_prompts(slots, dtype)});
    found->added.select(3, length_ % slots).zero_();
  }
  return found->added.narrow(3, 0, seen);
}

int64_t Cache::kept(int64_t window) const { return std::min(length_, slots_of(window, capacity_)); }

bool Cache::cut(int64_t tokens, int64_t capacity) {
  TORCH_INTERNAL_ASSERT(!prompt_mask_.defined(), "padding stands at the beginning");
  if (!std::ranges::all_of(layers_, [&](const LayerCache& l) { return l.can_be_cut(tokens); }))
    return false;
  capacity_ = std::max(capacity_, capacity);
  length_ = tokens;
  for (LayerCache& layer : layers_) {
    layer.cut(tokens);
    layer.allow(capacity_);
  }
  return true;
}

void Cache::advance(int64_t tokens) {
  length_ += tokens;
  // The next token takes the place of one that may have been padding.
  for (const Mask& mask : masks_) mask.added.select(3, length_ % mask.slots).zero_();
}

}  // namespace levin::models
