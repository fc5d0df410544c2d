#pragma once
// Checkpoints that ranks save together, and what is compared of them.

#include <fmt/format.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <utility>

#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/checkpoint_save.h"
#include "levin/comm/process_group.h"
#include "tests/checkpoint/on_disk.h"
#include "tests/support/world.h"

namespace levin::test {

constexpr int64_t kPieceFloats = (int64_t{16} << 20) / 4;

/// What ranks of data-parallel training hold: the same but for small tensors of each rank's own.
/// One tensor has two pieces, one lies otherwise in memory than in the file.
inline Checkpoint held_by_all(int64_t seed, int64_t rank) {
  State weights;
  weights.set("embedding", torch::arange(kPieceFloats + 1000, torch::kFloat) + seed)
      .set("conv", (torch::arange(48, torch::kFloat) + seed)
                       .view({2, 3, 2, 4})
                       .contiguous(at::MemoryFormat::ChannelsLast))
      .set("empty", torch::empty({0, 4}))
      .set("half", torch::full({7, 3}, seed, torch::kBFloat16))
      .set("scalar", torch::scalar_tensor(seed, torch::kLong));
  State moments;
  moments.set("exp_avg", torch::arange(5003, torch::kFloat) * 0.5 + seed).set("step", seed);
  State training;
  training.set("optimizer", std::move(moments))
      .set("random", torch::full({5056}, rank, torch::kByte))
      .set("rank", rank);
  return {{{"model", std::move(weights)}}, std::move(training)};
}

inline void save_together(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                          const comm::ProcessGroup& group,
                          const SaveCheckpointOptions& options = {}) {
  CheckpointSave(folder, checkpoint, group, options).finish();
}

/// The rows of a tensor that a rank holds of those cut at `cuts`.
inline TensorSlice rows_of(const at::Tensor& whole, int64_t begin, int64_t end) {
  std::vector<int64_t> offsets(static_cast<size_t>(whole.dim()), 0);
  offsets[0] = begin;
  return {whole.narrow(0, begin, end - begin), whole.sizes().vec(), std::move(offsets)};
}

/// Names of the files whose bytes differ, or that one folder lacks.
inline std::string other_files(const std::filesystem::path& a, const std::filesystem::path& b) {
  if (names_in(a) != names_in(b)) return "other names";
  std::string others;
  for (const std::string& name : names_in(a)) {
    if (get(a / name) != get(b / name)) others += name + " ";
  }
  return others;
}

}  // namespace levin::test
