#pragma once
// Cache: the keys and values of the tokens so far, so that a next token costs one token's work.
// Made by generate for its batch; bodies hand each layer's part to attend.
//
//   Cache cache({.capacity = 200}, attention_mask);
//   inputs.cache = &cache;
//   body.forward(inputs);                     // [B, T]: the prompts, padded on the left
//   inputs.input_ids = next;                  // [B, 1]
//   body.forward(inputs);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "levin/base/export.h"

namespace levin::models {

/// The KV cache of one layer. Its memory grows by doubling. A layer with a window keeps that many
/// tokens in a ring; the next token takes slot `position % window`, because attention does not
/// depend on the order.
class LEVIN_API LayerCache {
 public:
  struct View {
    at::Tensor key, value;  // [B, groups, tokens, D]
  };

  /// Takes the prompts' keys and values, [B, T, groups, D].
  void fill(const at::Tensor& key, const at::Tensor& value, int64_t window, int64_t capacity);
  /// Takes those of the next tokens, [B, T, groups, D], and gives what they see: of one token in any order,
  /// of several what was there in its order, and then themselves.
  View append(const at::Tensor& key, const at::Tensor& value);
  /// Returns whether the cache still has all of the first `tokens` that a next token may see. A
  /// ring that went round has lost its first tokens, and can only go on from its end.
  bool can_be_cut(int64_t tokens) const { return tokens == length_ || length_ <= most_; }
  void cut(int64_t tokens) { length_ = tokens; }
  /// Called before rows become as long as that.
  void allow(int64_t capacity);

 private:
  void reserve(int64_t slots);
  View append_several(const at::Tensor& key, const at::Tensor& value);

  at::Tensor key_, value_;  // [B, groups, slots, D]
  int64_t window_ = 0;      // 0: none
  int64_t most_ = 0;        // slots at most
  int64_t length_ = 0;      // tokens so far
};

class LEVIN_API Cache {
 public:
  /// capacity: tokens of a row at most. attention_mask: [B, T] of the prompts, 0 where a token is padding;
  /// undefined where none is.
  Cache(int64_t capacity, at::Tensor attention_mask)
      : capacity_(capacity), prompt_mask_(std::move(attention_mask)) {}

  int64_t capacity() const { return capacity_; }
  bool is_filled() const { return length_ > 0; }
  int64_t length() const { return length_; }
  LayerCache& layer(size_t index) {
    if (index >= layers_.size()) layers_.resize(index + 1);
    return layers_[index];
  }
  /// Returns the mask that is added to the next token's scores, [B, 1, 1, tokens], in the order in
  /// which LayerCache::append returns tokens under that window; undefined without padding.
  at::Tensor mask(int64_t window, at::ScalarType dtype);
  /// Tokens so far that a layer with that window keeps.
  int64_t kept(int64_t window) const;
  /// So many tokens more are in all layers.
  void advance(int64_t tokens);
  /// Goes back to the first `tokens`, for rows of up to `capacity` from now on. Returns false and
  /// changes nothing if a layer has lost tokens that this needs. For rows without padding.
  bool cut(int64_t tokens, int64_t capacity);

 private:
  struct Mask {
    int64_t slots;
    at::Tensor added;  // [B, 1, 1, slots]
  };
  at::Tensor of_prompts(int64_t slots, at::ScalarType dtype) const;

  int64_t capacity_;
  at::Tensor prompt_mask_;
  int64_t length_ = 0;
  std::vector<LayerCache> layers_;
  std::vector<Mask> masks_;
};

}  // namespace levin::models
