#pragma once
// The writing of a rank's pieces, now or later.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "levin/checkpoint/saving/own_pieces_impl.h"
#include "levin/checkpoint/saving/save_plan_impl.h"

namespace levin::detail {

struct WrittenPiece {
  int64_t file = 0;  ///< index in the plan
  int64_t begin = 0;
  int64_t end = 0;
  uint64_t xxh3 = 0;
};

/// Writes them into the plan's files, which are there, at these places; synced when it returns.
/// Throws Error "files.write", and "files.scratch" for pieces in a scratch file that cannot be read.
std::vector<WrittenPiece> write_pieces(const SavePlan& plan,
                                       const std::vector<std::filesystem::path>& places,
                                       const std::vector<OwnPiece>& pieces);

/// Returns whether the piece's elements are in a scratch file (--offload), which write_pieces reads piece by piece.
bool is_in_scratch(const OwnPiece& piece);

/// Memory for what an asynchronous save is still to write; stays for the next one.
struct SaveBuffer {
  at::Tensor bytes;
};

/// Copies the pieces' elements there, so that training may change the tensors.
void copy_into(SaveBuffer& buffer, std::vector<OwnPiece>& pieces);

}  // namespace levin::detail
