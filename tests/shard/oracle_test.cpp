// The parts that ranks hold by default are those of DTensor: tests/oracle/layouts.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "levin/shard/layout.h"
#include "tests/optim/golden.h"

namespace {

using levin::comm::MeshAxis;
using levin::shard::Layout;
using levin::shard::part_of;
using levin::shard::Placement;
using levin::shard::Replicate;
using levin::shard::Shard;

using Numbers = std::vector<int64_t>;

Layout layout_of(const nlohmann::json& facts) {
  std::vector<MeshAxis> axes;
  for (const int64_t size : facts["mesh"]) {
    axes.push_back({"axis" + std::to_string(axes.size()), size});
  }
  std::vector<Placement> placements;
  for (const auto& dim : facts["dims"]) {
    placements.push_back(dim.is_null() ? Placement(Replicate{}) : Shard{dim.get<int64_t>()});
  }
  return {facts["whole"].get<Numbers>(), axes, placements};
}

TEST(LayoutOracle, RanksHoldWhatDTensorGivesThem) {
  const nlohmann::json cases = golden::facts("layouts");
  EXPECT_GE(cases.size(), 15U);
  for (const auto& [name, facts] : cases.items()) {
    const Layout layout = layout_of(facts);
    const auto sizes = facts["sizes"].get<std::vector<Numbers>>();
    const auto elements = facts["elements"].get<std::vector<Numbers>>();
    const at::Tensor whole = torch::arange(layout.numel()).view(layout.sizes());
    ASSERT_EQ(std::ssize(sizes), layout.mesh().size()) << name;
    for (size_t rank = 0; rank < sizes.size(); ++rank) {
      const auto slice = layout.slice(static_cast<int64_t>(rank));
      EXPECT_EQ(slice.sizes, sizes[rank]) << name << " on rank " << rank;
      const at::Tensor part =
          part_of(whole, levin::shard::full_slice(layout.sizes()), slice).contiguous();
      const auto* first = part.const_data_ptr<int64_t>();
      EXPECT_EQ(Numbers(first, first + part.numel()), elements[rank])
          << name << " on rank " << rank;
    }
  }
}

}  // namespace
