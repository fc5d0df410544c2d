// Pixels made of channels, and channels in another order: views whose dimensions change places.
#include <array>
#include <numeric>
#include <span>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

/// x as `split`, whose dimensions from `first` on are put into that order, as the result's sizes.
void give_regrouped(Lowering& at, const Hlo& x, const Dims& split, int64_t first,
                    std::span<const int64_t> order) {
  Dims permutation(split.size());
  std::iota(permutation.begin(), permutation.end(), 0);
  for (size_t i = 0; i < order.size(); ++i) permutation[first + i] = first + order[i];
  at.give(at.hlo.reshape(at.hlo.transpose(at.hlo.reshape(x, split), permutation), at.sizes()));
}

/// [.., c r r, h, w] as [.., c, h r, w r]
void lower_pixel_shuffle(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t factor = at.integer(1);
  const int64_t first = x.rank() - 3;
  Dims split(x.sizes.begin(), x.sizes.begin() + first);
  split.insert(split.end(), {x.sizes[first] / (factor * factor), factor, factor, x.sizes[first + 1],
                             x.sizes[first + 2]});
  constexpr std::array<int64_t, 5> kOrder = {0, 3, 1, 4, 2};
  give_regrouped(at, x, split, first, kOrder);
}

/// [.., c, h r, w r] as [.., c r r, h, w]
void lower_pixel_unshuffle(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t factor = at.integer(1);
  const int64_t first = x.rank() - 3;
  Dims split(x.sizes.begin(), x.sizes.begin() + first + 1);
  split.insert(split.end(),
               {x.sizes[first + 1] / factor, factor, x.sizes[first + 2] / factor, factor});
  constexpr std::array<int64_t, 5> kOrder = {0, 2, 4, 1, 3};
  give_regrouped(at, x, split, first, kOrder);
}

/// [n, groups a, ..] as [n, a groups, ..]
void lower_channel_shuffle(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t groups = at.integer(1);
  Dims split = x.sizes;
  split[1] /= groups;
  split.insert(split.begin() + 1, groups);
  constexpr std::array<int64_t, 2> kOrder = {1, 0};
  give_regrouped(at, x, split, 1, kOrder);
}

}  // namespace

void add_pixels(LoweringTable& table) {
  table["aten::pixel_shuffle"] = lower_pixel_shuffle;
  table["aten::pixel_unshuffle"] = lower_pixel_unshuffle;
  table["aten::channel_shuffle"] = lower_channel_shuffle;
}

}  // namespace levin::xla
