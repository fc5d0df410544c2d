#pragma once
// Small networks and data for the tests of the accelerator.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/accelerator/accelerator.h"
#include "levin/base/random.h"
#include "levin/data/sources/sources.h"
#include "levin/module/parameters.h"
#include "levin/optim/optim.h"
#include "tests/support/off_disk.h"

namespace small_nets {

/// "image" [size, 6] and "label" [size], the same each time.
inline levin::DatasetPtr dataset(int64_t size) {
  const auto x = torch::randn({size, 6}, at::make_generator<at::CPUGeneratorImpl>(uint64_t{5}));
  return levin::test::off_disk(
      levin::data::tensors({{"image", x}, {"label", x.sum(1).gt(0).to(torch::kLong)}}));
}

/// All samples of the data set as one batch.
inline levin::Batch whole(const levin::DatasetPtr& data) {
  std::vector<int64_t> indices(static_cast<size_t>(data->size()));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
  return data->get(indices);
}

/// A user's own module; the same weights each time.
struct OwnNetImpl : torch::nn::Module {
  torch::nn::Linear hidden{nullptr};
  torch::nn::Linear out{nullptr};

  OwnNetImpl() {
    torch::manual_seed(1);
    hidden = register_module("hidden", torch::nn::Linear(6, 16));
    out = register_module("out", torch::nn::Linear(16, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return out->forward(hidden->forward(x).relu()); }
};
TORCH_MODULE(OwnNet);

/// The same network as a Sequential.
inline torch::nn::Sequential sequential() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::ReLU(),
                               torch::nn::Linear(16, 2));
}

/// With all that has a state of its own: batch norm's buffers and dropout's draws.
inline torch::nn::Sequential with_dropout() {
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::BatchNorm1d(16),
                               torch::nn::ReLU(), torch::nn::Dropout(0.4),
                               torch::nn::Linear(16, 2));
}

template <class Model>
at::Tensor loss_of(Model& model, const levin::Batch& batch) {
  return torch::nn::functional::cross_entropy(model->forward(batch["image"]), batch["label"]);
}

/// Of the parameters in order, so that modules of other names can be compared.
inline void expect_close_weights(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto mine = a.parameters();
  const auto theirs = b.parameters();
  ASSERT_EQ(mine.size(), theirs.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(torch::allclose(mine[i].cpu(), theirs[i].cpu(), 1e-5, 1e-6)) << i;
  }
}

}  // namespace small_nets
