#pragma once
// MatmulChoice: chooses the products of a Replay that a Matmul runs, and its block size. It decides
// by a trial at run time: a Matmul must give ATen's bits for random numbers, and be faster.
//
//   MatmulChoice choice;
//   if (const auto block_k = choice.block_k(op, arguments)) ...  // of Matmul

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/replay/matmul_impl.h"

namespace levin::graph {

/// The settings by which ATen chooses kernels, beside the operands: a choice holds while they do
/// not change.
struct LEVIN_API MatmulSettings {
  int num_threads = 0;
  at::Float32Precision precision = at::Float32Precision::NONE;
  bool has_onednn = false;

  static MatmulSettings now();
  bool operator==(const MatmulSettings&) const = default;
};

class LEVIN_API MatmulChoice {
 public:
  MatmulChoice();

  /// Returns nothing if ATen's own kernel is the choice.
  std::optional<int64_t> block_k(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

  /// The first part of it: blocks that give ATen's bits. The order in which a library sums does not
  /// depend on the numbers, so that thousands of random ones tell.
  std::optional<int64_t> equal_block_k(const c10::OperatorHandle& op,
                                       const torch::jit::Stack& arguments);

 private:
  using Key = std::vector<int64_t>;

  at::Generator random_;
  std::map<Key, std::optional<int64_t>> tried_;
};

}  // namespace levin::graph
