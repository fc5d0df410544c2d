#include "levin/data/batch.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "tests/support/error_of.h"

namespace {

using levin::Batch;
using levin::test::error_of;
using testing::StartsWith;

Batch small() { return {{"image", torch::rand({4, 2})}, {"label", torch::arange(4)}}; }

TEST(Batch, GivesItsTensorsByName) {
  const auto image = torch::rand({4, 2});
  const Batch batch{{"image", image}, {"label", torch::arange(4)}};
  EXPECT_TRUE(batch["image"].is_same(image));
  EXPECT_TRUE(batch.contains("label"));
  EXPECT_FALSE(batch.contains("mask"));
}

TEST(Batch, KeepsTheOrderOfItsFields) {
  Batch batch{{"z", torch::zeros({1})}, {"a", torch::zeros({1})}};
  batch.set("m", torch::zeros({1}));
  batch.set("z", torch::ones({1}));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : batch) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"z", "a", "m"}));
}

TEST(Batch, SetReplacesTheTensorOfThatName) {
  Batch batch = small();
  batch.set("label", torch::full({4}, 7));
  EXPECT_EQ(batch["label"][0].item<int64_t>(), 7);
  EXPECT_EQ(batch.fields().size(), 2u);
}

TEST(Batch, SizeIsTheFirstDimOfTheFirstTensor) {
  EXPECT_EQ(small().size(), 4);
  EXPECT_EQ(Batch().size(), 0);
  EXPECT_EQ((Batch{{"loss", torch::tensor(1.0)}}).size(), 0);
  EXPECT_EQ((Batch{{"none", torch::Tensor()}}).size(), 0);
}

TEST(Batch, NarrowGivesViews) {
  const Batch batch = small();
  const Batch part = batch.narrow(1, 2);
  EXPECT_EQ(part.size(), 2);
  EXPECT_EQ(part["label"][0].item<int64_t>(), 1);
  EXPECT_TRUE(part["image"].is_alias_of(batch["image"]));
}

TEST(Batch, ToTheSameDeviceGivesTheSameTensors) {
  const Batch batch = small();
  EXPECT_TRUE(batch.to(at::kCPU)["image"].is_same(batch["image"]));
}

TEST(Batch, ToMovesEveryTensor) {
  for (const auto& [name, tensor] : small().to(at::kMeta)) EXPECT_TRUE(tensor.is_meta()) << name;
}

TEST(Batch, MistakesAreErrors) {
  const Batch batch = small();
  EXPECT_EQ(error_of([&] { batch["mask"]; }),
            "data.batch.field: this batch has no 'mask'; it holds [image, label]");
  EXPECT_THAT(error_of([] { Batch{{"x", torch::ones({1})}, {"x", torch::ones({1})}}; }),
              StartsWith("data.batch.field: got the field 'x' twice"));
  EXPECT_EQ(error_of([&] { batch.narrow(3, 2); }),
            "data.batch.narrow: got samples [3, 3 + 2), wanted a range within the 4 samples of the "
            "batch");
  EXPECT_THAT(error_of([&] { batch.narrow(-1, 2); }), StartsWith("data.batch.narrow"));
}

TEST(Batch, PinnedMemoryWithoutCudaIsAnError) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "CUDA is there";
  EXPECT_THAT(error_of([] { small().pin_memory(); }), StartsWith("data.batch.pin_memory"));
}

}  // namespace
