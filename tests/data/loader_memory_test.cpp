#include <gmock/gmock.h>
#include <torch/torch.h>

#include <set>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/support/off_disk.h"

namespace {

using levin::Batch;
using levin::DataLoader;

constexpr int64_t kSize = 64;

struct Data {
  at::Tensor image = torch::randint(0, 256, {kSize, 1, 5, 7}, at::kByte);
  at::Tensor label = torch::arange(kSize);
  levin::DatasetPtr dataset = levin::test::off_disk(
      levin::data::tensors({{"image", image}, {"label", label}}, {{"image", 0.3, 0.5}}));

  DataLoader loader(int64_t workers, bool shuffle = true, int64_t batch_size = 6) const {
    return {dataset,
            {.batch_size = batch_size, .shuffle = shuffle, .num_workers = workers, .seed = 3}};
  }
  bool holds_what_it_should(const Batch& batch) const {
    const auto rows = image.index_select(0, batch["label"]).to(at::kFloat);
    return torch::allclose(batch["image"], (rows / 255 - 0.3) / 0.5, 1e-5, 1e-5);
  }
};

class LoaderMemory : public testing::TestWithParam<int64_t> {};

TEST_P(LoaderMemory, IsUsedAgainWhenTheBatchWasLetGo) {
  const Data data;
  DataLoader loader = data.loader(GetParam());
  std::set<const void*> images;
  std::set<const void*> labels;
  int64_t batches = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (const auto& batch : loader) {
      images.insert(batch["image"].const_data_ptr());
      labels.insert(batch["label"].const_data_ptr());
      ++batches;
    }
  }
  const size_t most = GetParam() == 0 ? 1 : static_cast<size_t>(3 * GetParam() + 2);
  EXPECT_EQ(batches, 220);
  EXPECT_LE(images.size(), most);
  EXPECT_LE(labels.size(), most);
}

TEST_P(LoaderMemory, OfABatchThatIsHeldIsNotWrittenTo) {
  const Data data;
  DataLoader loader = data.loader(GetParam());
  std::vector<Batch> held;
  for (int epoch = 0; epoch < 6; ++epoch) {
    int64_t number = 0;
    for (const auto& batch : loader) {
      EXPECT_TRUE(data.holds_what_it_should(batch));
      if (++number % 3 == 0) held.push_back(batch);
    }
  }
  for (const Batch& batch : held) EXPECT_TRUE(data.holds_what_it_should(batch));
}

TEST_P(LoaderMemory, OfWhichAViewIsHeldIsNotWrittenTo) {
  using Take = at::Tensor (*)(const Batch&);
  const std::vector<Take> takes = {
      [](const Batch& batch) { return batch["image"].select(0, 0); },
      [](const Batch& batch) { return batch["image"].flatten(); },
      [](const Batch& batch) { return batch["image"].detach(); },
      [](const Batch& batch) { return batch.narrow(1, 1)["image"]; },
      [](const Batch& batch) { return batch["label"].slice(0, 0, 2); },
      [](const Batch& batch) { return at::empty({0}).set_(batch["image"].storage()); },
  };
  const Data data;
  for (size_t i = 0; i < takes.size(); ++i) {
    DataLoader loader = data.loader(GetParam());
    std::vector<std::pair<at::Tensor, at::Tensor>> held;
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (const auto& batch : loader) {
        const at::Tensor view = takes[i](batch);
        held.emplace_back(view, view.clone());
      }
    }
    for (const auto& [view, copy] : held) EXPECT_TRUE(torch::equal(view, copy)) << "view " << i;
  }
}

TEST_P(LoaderMemory, IsUsedAgainFieldByField) {
  const Data data;
  DataLoader loader = data.loader(GetParam());
  std::vector<at::Tensor> labels;
  std::set<const void*> images;
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (const auto& batch : loader) {
      labels.push_back(batch["label"]);
      images.insert(batch["image"].const_data_ptr());
    }
  }
  const auto all = torch::cat(labels).reshape({10, kSize});
  EXPECT_TRUE(torch::equal(std::get<0>(all.sort(1)), torch::arange(kSize).expand({10, kSize})));
  EXPECT_LE(std::ssize(images), 3 * GetParam() + 4);
}

TEST_P(LoaderMemory, ComesBackAsNewWhateverWasDoneToTheBatch) {
  const Data data;
  DataLoader loader = data.loader(GetParam());
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (const auto& batch : loader) {
      EXPECT_TRUE(data.holds_what_it_should(batch));
      EXPECT_FALSE(batch["image"].requires_grad());
      at::Tensor image = batch["image"];  // NOLINT(performance-unnecessary-copy-initialization)
      image.zero_();
      image.squeeze_(1).transpose_(1, 2);
      image.requires_grad_();
      image.sum().backward();
    }
  }
}

TEST_P(LoaderMemory, OfTheDataSetIsNeverWrittenTo) {
  const Data data;
  const auto image = data.image.clone();
  const auto raw =
      levin::test::off_disk(levin::data::tensors({{"image", data.image}, {"label", data.label}}));
  // One batch a view of the data, the next a gather: a sampler that is in order half of the time.
  class Halves final : public levin::Sampler {
   public:
    int64_t size() const override { return kSize; }
    void start(int64_t, int64_t consumed) override { position_ = consumed; }
    int64_t next(std::span<int64_t> indices) override {
      int64_t count = 0;
      for (; count < std::ssize(indices) && position_ < kSize; ++position_) {
        indices[count++] = position_ / 6 % 2 == 0 ? position_ : kSize - 1 - position_;
      }
      return count;
    }

   private:
    int64_t position_ = 0;
  };
  DataLoader loader(
      raw, {.batch_size = 6, .sampler = std::make_shared<Halves>(), .num_workers = GetParam()});
  int64_t views = 0;
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const auto& batch : loader) {
      views += batch["image"].is_alias_of(data.image);
      EXPECT_TRUE(torch::equal(batch["image"], image.index_select(0, batch["label"])));
    }
  }
  EXPECT_EQ(views, 30);
  EXPECT_TRUE(torch::equal(data.image, image));
}

INSTANTIATE_TEST_SUITE_P(DataLoader, LoaderMemory, testing::Values(0, 1, 3));

}  // namespace
