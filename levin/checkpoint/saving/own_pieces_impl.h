#pragma once
// Chooses the bytes of a save's files that each rank writes. Any rank may write a tensor that all
// ranks hold alike. Tensors are cut at fixed places, so that the files do not depend on the ranks
// that write the pieces. Not for users.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "levin/checkpoint/saving/save_plan_impl.h"

namespace levin::detail {

/// Most bytes that have a checksum of their own; a multiple of the size of every element.
constexpr int64_t kPieceBytes = int64_t{16} << 20;

/// Bytes of a file that this rank writes.
struct OwnPiece {
  size_t file = 0;  ///< index in the plan
  int64_t begin = 0;
  int64_t end = 0;
  at::Tensor elements = {};   ///< contiguous, one dim; undefined: of the file's head
  int64_t first_element = 0;  ///< first of these elements in the piece

  int64_t size() const { return end - begin; }
};

/// Returns marks that tell one value of a tensor from another, for each tensor of the plan in its
/// order: all bytes of a small one, samples of a large one. Tensors on devices whose memory cannot
/// be read piece by piece get another mark on every rank. All shards get one mark of their own.
at::Tensor values_of(const SavePlan& plan, const Sources& own, int64_t rank);

/// By tensor of the plan: all ranks hold the same. Where that is not so of a large one, it is so of
/// none that is large, for the ranks are then of different steps (LocalSGD between its averages).
std::vector<bool> held_by_all(const SavePlan& plan, const std::vector<at::Tensor>& values);

/// Returns where the shard of each tensor of the plan that is one here begins and ends in its file,
/// [tensors, 2]; -1 for other tensors.
at::Tensor shards_of(const SavePlan& plan, const Sources& own);

/// Among how many ranks a shard is dealt out, and the number of this rank among them.
struct Replicas {
  int64_t count = 1;
  int64_t number = 0;
};

/// Returns for each tensor of the plan which of these ranks hold the same shard as rank `rank` of
/// them. shards: shards_of() of each rank.
std::vector<Replicas> replicas_in(const std::vector<at::Tensor>& shards, int64_t rank);

/// The pieces that rank `rank` of `size` writes, in the order of the files. Tensors that all ranks
/// hold are dealt out among them; each rank writes its rows of sharded tensors, or its part of them if
/// others have the same rows; the first rank writes the rest. Throws Error "checkpoint.ranks" for a tensor that is a shard here but not on
/// other ranks, or another one there, and "checkpoint.slice" for a shard that is not full rows.
std::vector<OwnPiece> own_pieces(const SavePlan& plan, const Sources& own,
                                 const std::vector<bool>& held,
                                 const std::vector<Replicas>& replicas, int64_t rank, int64_t size);

}  // namespace levin::detail
