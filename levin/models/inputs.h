#pragma once
// Inputs: the fields of a batch that a body reads.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace levin {
class Batch;
}  // namespace levin

namespace levin::models {

class Cache;

/// Each [B, T]; all but input_ids may be undefined.
struct Inputs {
  at::Tensor input_ids;       ///< int64
  at::Tensor attention_mask;  ///< 0 where a token is padding
  at::Tensor token_type_ids;  ///< int64: 0 the first text of a pair, 1 the second
  at::Tensor position_ids;    ///< int64
  /// int64: which document of a packed row a token is of; below 0: of none. Documents never see each
  /// other.
  at::Tensor document;
  /// KV cache of the tokens before these: then input_ids are the prompts, or the next token of each
  /// row, and position_ids are given. nullptr: none.
  Cache* cache = nullptr;

  /// Throws Error "models.input" where input_ids is missing or not [B, T] of int64, or another field
  /// has other sizes.
  static Inputs from(const Batch& batch);

  /// int64 [B or 1, T]: position_ids, or the place of each token in its document, or in its row.
  at::Tensor positions() const;
};

}  // namespace levin::models
