// Every layer of torch::nn, built without memory.
#include <gtest/gtest.h>

#include "tests/graph/layer_cases.h"
#include "tests/graph/meta/built_modules.h"

namespace {

using levin::test::expect_builds_as_ever;
using levin::test::LayerCase;

class LayersOnMeta : public testing::TestWithParam<LayerCase> {};

TEST_P(LayersOnMeta, AreAsOrdinaryOnes) {
  expect_builds_as_ever([] { return GetParam().make().module; });
}

/// The second number of a pair is kept for the next draw.
TEST_P(LayersOnMeta, AreAsOrdinaryOnesInDoublesWithANumberKept) {
  const auto dtype = torch::get_default_dtype();
  torch::set_default_dtype(torch::scalarTypeToTypeMeta(torch::kDouble));
  expect_builds_as_ever([] { return GetParam().make().module; }, 9, [] { torch::randn({3}); });
  torch::set_default_dtype(dtype);
}

/// Without a value before it is asked for.
TEST_P(LayersOnMeta, HaveNoMemoryBefore) {
  const auto module = levin::init_on_meta([] { return GetParam().make().module; });
  for (const auto& [name, tensor] : levin::test::tensors_by_name(*module)) {
    if (tensor.defined()) EXPECT_TRUE(tensor.is_meta()) << name;
  }
  const auto ordinary = GetParam().make().module;
  EXPECT_EQ(levin::is_on_meta(*module), !levin::test::tensors_by_name(*ordinary).empty());
}

INSTANTIATE_TEST_SUITE_P(Table, LayersOnMeta, testing::ValuesIn(levin::test::layer_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
