#include "levin/accelerator/prepared/prepared_loader.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <iterator>

#include "tests/accelerator/small_nets.h"

namespace {

using levin::DataLoader;
using levin::PreparedLoader;
using small_nets::dataset;

static_assert(std::input_iterator<PreparedLoader::Iterator>);

DataLoader shuffled(int64_t num_workers = 0) {
  return {dataset(20), {.batch_size = 8, .shuffle = true, .num_workers = num_workers, .seed = 3}};
}

/// The images of one pass, in order.
template <class Loader>
at::Tensor images(Loader& loader) {
  std::vector<at::Tensor> all;
  for (const auto& batch : loader) all.push_back(batch["image"].clone());
  return all.empty() ? at::Tensor() : torch::cat(all);
}

TEST(PreparedLoader, GivesTheLoadersBatchesEpochAfterEpoch) {
  for (const int64_t num_workers : {0, 2}) {
    DataLoader reference = shuffled();
    PreparedLoader prepared(shuffled(num_workers), at::kCPU);
    for (int epoch = 0; epoch < 3; ++epoch) {
      EXPECT_TRUE(torch::equal(images(prepared), images(reference))) << epoch;
    }
  }
}

TEST(PreparedLoader, CountsTheBatchesOfAnEpoch) {
  EXPECT_EQ(PreparedLoader(shuffled(), at::kCPU).size(), 3);
}

TEST(PreparedLoader, ALoopLeftEarlyIsFollowedByTheNextEpoch) {
  DataLoader reference = shuffled();
  images(reference);
  PreparedLoader prepared(shuffled(), at::kCPU);
  for ([[maybe_unused]] const auto& batch : prepared) break;
  EXPECT_TRUE(torch::equal(images(prepared), images(reference)));
}

TEST(PreparedLoader, AfterALoadedStateALoopGoesOnInTheMiddleOfTheEpoch) {
  PreparedLoader first(shuffled(), at::kCPU);
  const at::Tensor wanted = images(first);
  PreparedLoader interrupted(shuffled(), at::kCPU);
  for ([[maybe_unused]] const auto& batch : interrupted) break;
  PreparedLoader resumed(shuffled(), at::kCPU);
  resumed.loader().load_state_dict(interrupted.loader().state_dict());
  EXPECT_TRUE(torch::equal(images(resumed), wanted.slice(0, 8)));
}

TEST(PreparedLoader, ABatchIsTheLoadersOwnWhereItIsOnTheDeviceAlready) {
  const at::Tensor x = torch::arange(8);
  PreparedLoader prepared({levin::data::tensors({{"x", x}}), {.batch_size = 8}}, at::kCPU);
  EXPECT_EQ((*prepared.begin())["x"].data_ptr(), x.data_ptr());
}

TEST(PreparedLoader, BatchesArriveOnTheDevice) {
  PreparedLoader prepared({dataset(8), {.batch_size = 4}}, at::kMeta);
  for (const auto& batch : prepared) {
    EXPECT_TRUE(batch["image"].is_meta());
    EXPECT_TRUE(batch["label"].is_meta());
  }
}

}  // namespace
