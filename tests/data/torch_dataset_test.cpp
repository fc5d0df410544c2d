#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/support/error_of.h"

namespace {

using levin::data::torch_dataset;
using levin::test::error_of;
using ::testing::ElementsAre;
using ::testing::StartsWith;

/// Sample i is {i, 10 * i}; counts in a member how often it was read, as a user's may.
struct Numbers : torch::data::Dataset<Numbers> {
  int64_t count;
  int64_t reads = 0;

  explicit Numbers(int64_t count) : count(count) {}
  torch::data::Example<> get(size_t index) override {
    ++reads;
    const at::Tensor x = torch::full({1}, static_cast<double>(index));
    return {x, (x * 10).to(torch::kLong).squeeze()};
  }
  torch::optional<size_t> size() const override {
    return count < 0 ? torch::optional<size_t>() : static_cast<size_t>(count);
  }
};

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.flatten().to(torch::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

TEST(TorchDataset, StacksItsSamples) {
  const auto dataset = torch_dataset(Numbers(5));
  EXPECT_EQ(dataset->size(), 5);
  const std::vector<int64_t> wanted = {3, 1};
  const levin::Batch batch = dataset->get(wanted);
  EXPECT_EQ(batch["data"].sizes(), at::IntArrayRef({2, 1}));
  EXPECT_THAT(values(batch["data"]), ElementsAre(3, 1));
  EXPECT_THAT(values(batch["target"]), ElementsAre(30, 10));
}

TEST(TorchDataset, TakesWhatStackMadeOfThem) {
  const auto dataset = torch_dataset(Numbers(5).map(torch::data::transforms::Stack<>()));
  const std::vector<int64_t> wanted = {4, 0};
  EXPECT_THAT(values(dataset->get(wanted)["target"]), ElementsAre(40, 0));
}

TEST(TorchDataset, TakesSamplesWithoutTarget) {
  const auto dataset = torch_dataset(torch::data::datasets::TensorDataset(torch::arange(4)));
  const std::vector<int64_t> wanted = {2, 3};
  const levin::Batch batch = dataset->get(wanted);
  EXPECT_THAT(values(batch["data"]), ElementsAre(2, 3));
  EXPECT_FALSE(batch.contains("target"));
}

TEST(TorchDataset, IsReadByWorkersAndInTheSameOrder) {
  const auto epoch = [](int64_t num_workers) {
    levin::DataLoader loader(
        torch_dataset(Numbers(40)),
        {.batch_size = 3, .shuffle = true, .num_workers = num_workers, .seed = 7});
    std::vector<double> all;
    for (const auto& batch : loader) {
      for (const double value : values(batch["data"])) all.push_back(value);
    }
    return all;
  };
  const std::vector<double> alone = epoch(0);
  EXPECT_EQ(alone.size(), 40U);
  EXPECT_EQ(epoch(3), alone);
}

TEST(TorchDataset, OfUnknownSizeIsAnError) {
  EXPECT_THAT(error_of([] { torch_dataset(Numbers(-1)); }),
              StartsWith("data.torch_dataset.size: this torch::data dataset does not know"));
}

}  // namespace
