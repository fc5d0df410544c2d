#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>

#include "levin/data/sources/sources.h"
#include "tests/support/error_of.h"

namespace {

using levin::Batch;
using levin::data::Normalize;
using levin::test::error_of;
using testing::StartsWith;

using Indices = std::vector<int64_t>;

const Indices kMixed = {5, 0, 5, 9, 3};

TEST(TensorDataset, GathersRowsOfEveryDtypeAndShape) {
  const std::vector<std::vector<int64_t>> shapes = {{10}, {10, 1}, {10, 3}, {10, 28, 28}, {10, 0}};
  for (const auto dtype : {at::kByte, at::kBool, at::kShort, at::kInt, at::kLong, at::kHalf,
                           at::kFloat, at::kDouble, at::kComplexDouble}) {
    for (const auto& shape : shapes) {
      const auto x = torch::randint(0, 100, shape).to(dtype);
      const Batch batch = levin::data::tensors({{"x", x}})->get(kMixed);
      EXPECT_TRUE(torch::equal(batch["x"], x.index_select(0, torch::tensor(kMixed))))
          << dtype << " " << x.sizes();
    }
  }
}

TEST(TensorDataset, TakesFieldsThatAreNotContiguous) {
  const auto x = torch::rand({4, 10}).t();
  const Batch batch = levin::data::tensors({{"x", x}})->get(kMixed);
  EXPECT_TRUE(torch::equal(batch["x"], x.index_select(0, torch::tensor(kMixed))));
}

TEST(TensorDataset, NormalizedGatherEqualsAtenBitForBit) {
  for (const int64_t row : {1, 31, 32, 33, 784}) {
    const auto x = torch::randint(0, 256, {10, row}, at::kByte);
    const auto dataset = levin::data::tensors({{"x", x}}, {{"x", 0.2860, 0.3530}});
    const auto mean = static_cast<float>(255 * 0.2860);
    const auto scale = static_cast<float>(1 / (255 * 0.3530));
    for (const Indices& indices : {kMixed, Indices{2, 3, 4}}) {
      const auto rows = x.index_select(0, torch::tensor(indices)).to(at::kFloat);
      EXPECT_TRUE(torch::equal(dataset->get(indices)["x"], (rows - mean) * scale));
    }
  }
}

TEST(TensorDataset, NormalizedValuesAreThoseOfTheFormula) {
  const auto x = torch::arange(256).to(at::kByte).unsqueeze(0);
  const auto dataset = levin::data::tensors({{"x", x}}, {{"x", 0.2860, 0.3530}});
  const auto wanted = (torch::arange(256).to(at::kDouble) / 255 - 0.2860) / 0.3530;
  const auto got = dataset->get(Indices{0})["x"][0].to(at::kDouble);
  const double ulp_of_two = 2 * std::numeric_limits<float>::epsilon();
  EXPECT_LT((got - wanted).abs().max().item<double>(), ulp_of_two);
}

TEST(TensorDataset, ARunOfIndicesIsAView) {
  const auto x = torch::rand({10, 3});
  const Batch batch = levin::data::tensors({{"x", x}})->get(Indices{4, 5, 6});
  EXPECT_TRUE(batch["x"].is_alias_of(x));
  EXPECT_TRUE(torch::equal(batch["x"], x.narrow(0, 4, 3)));
}

TEST(TensorDataset, DrawWritesIntoTheMemoryItIsGiven) {
  const auto dataset = levin::data::tensors({{"x", torch::rand({10, 3})}});
  Batch first = dataset->get(kMixed);
  const void* memory = first["x"].const_data_ptr();
  const Batch second = dataset->draw(Indices{8, 1}, {}, std::move(first));
  EXPECT_EQ(second["x"].const_data_ptr(), memory);
  EXPECT_TRUE(torch::equal(second["x"], dataset->get(Indices{8, 1})["x"]));
}

TEST(TensorDataset, DrawLeavesMemoryAloneThatItCannotUse) {
  const auto x = torch::rand({10, 3});
  const auto dataset = levin::data::tensors({{"x", x}});
  const auto wanted = x.clone();
  Batch view = dataset->get(Indices{0, 1, 2});  // of x itself
  dataset->draw(Indices{9, 8, 7}, {}, std::move(view));
  EXPECT_TRUE(torch::equal(x, wanted)) << "a view of the data set was written to";

  const Batch held = dataset->get(kMixed);
  const auto before = held["x"].clone();
  dataset->draw(Indices{1, 3, 1, 3, 1}, {}, held);
  EXPECT_TRUE(torch::equal(held["x"], before)) << "a batch that is still held was written to";

  Batch other{{"x", torch::zeros({5, 3}, at::kDouble)}};
  EXPECT_EQ(dataset->draw(kMixed, {}, std::move(other))["x"].scalar_type(), at::kFloat);
}

TEST(TensorDataset, GivesAnEmptyBatchForNoIndices) {
  const auto dataset = levin::data::tensors({{"x", torch::rand({10, 3})}});
  EXPECT_EQ(dataset->get({})["x"].sizes(), (std::vector<int64_t>{0, 3}));
}

TEST(TensorDataset, IndicesOutsideAreNamed) {
  const auto dataset = levin::data::tensors({{"x", torch::rand({10})}});
  EXPECT_EQ(error_of([&] { dataset->get(Indices{1, 10}); }),
            "data.tensors.index: got index 10 for a dataset of 10 samples, wanted 0 <= index < 10");
  EXPECT_THAT(error_of([&] { dataset->get(Indices{-1}); }), StartsWith("data.tensors.index"));
}

TEST(TensorDataset, MistakesAreErrors) {
  struct Case {
    Batch fields;
    std::vector<Normalize> normalize;
    const char* error;
  };
  const auto bytes = torch::zeros({3, 2}, at::kByte);
  const std::vector<Case> cases = {
      {{}, {}, "data.tensors.empty"},
      {{{"a", bytes}, {"b", torch::zeros({2})}},
       {},
       "data.tensors.size: 'b' holds 2 samples but 'a' holds 3"},
      {{{"a", torch::tensor(1)}}, {}, "data.tensors.size: 'a' is a scalar"},
      {{{"a", torch::Tensor()}}, {}, "data.tensors.size: 'a' is undefined"},
      {{{"a", bytes.to(at::kMeta)}}, {}, "data.tensors.device"},
      {{{"a", bytes.to_sparse()}}, {}, "data.tensors.device"},
      {{{"a", bytes}}, {{"b", 0, 1}}, "data.tensors.normalize: got no field 'b'"},
      {{{"a", torch::zeros({3})}},
       {{"a", 0, 1}},
       "data.tensors.normalize: 'a' is Float, wanted uint8"},
      {{{"a", bytes}}, {{"a", 0, 0}}, "data.tensors.normalize: 'a' has the standard deviation 0"},
      {{{"a", bytes}},
       {{"a", 0, 1}, {"a", 0, 1}},
       "data.tensors.normalize: got the field 'a' twice to normalize"},
  };
  for (const Case& mistake : cases) {
    EXPECT_THAT(error_of([&] { levin::data::tensors(mistake.fields, mistake.normalize); }),
                StartsWith(mistake.error));
  }
}

}  // namespace
