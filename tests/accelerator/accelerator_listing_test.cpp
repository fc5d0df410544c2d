// The loop of one's own from the design, as it stands there, with the umbrella header alone.
#include <ATen/autocast_mode.h>

#include "tests/accelerator/small_nets.h"
#include <levin/levin.h>

namespace {

using small_nets::OwnNet;
using small_nets::OwnNetImpl;

template <class Net>
void train_by_listing(Net net, const levin::DataLoader& train_loader) {
  levin::Accelerator accelerator({.mixed_precision = "bf16"});
  auto [model, optimizer, loader] =
      accelerator.prepare(net, levin::optim::adamw({.lr = 1e-3}), train_loader);
  for (const auto& batch : loader) {
    optimizer.zero_grad();
    auto loss =
        torch::nn::functional::cross_entropy(model->forward(batch["image"]), batch["label"]);
    accelerator.backward(loss);
    optimizer.step();
  }
}

/// The same with LibTorch alone.
template <class Net>
void train_by_hand(Net net, levin::DataLoader train_loader) {
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
  for (const auto& batch : train_loader) {
    optimizer.zero_grad();
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor output = net->forward(batch["image"]);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    torch::nn::functional::cross_entropy(output.to(torch::kFloat), batch["label"]).backward();
    optimizer.step();
  }
}

template <class Net>
Net make_net() {
  if constexpr (std::is_same_v<Net, torch::nn::Sequential>) {
    return small_nets::sequential();
  } else if constexpr (std::is_same_v<Net, OwnNet>) {
    return OwnNet();
  } else {
    return std::make_shared<OwnNetImpl>();
  }
}

levin::DataLoader listing_loader() { return {small_nets::dataset(80), {.batch_size = 8}}; }

template <class Net>
class Listing : public ::testing::Test {};
using HoldersAndPointers =
    ::testing::Types<torch::nn::Sequential, OwnNet, std::shared_ptr<OwnNetImpl>>;
TYPED_TEST_SUITE(Listing, HoldersAndPointers);

TYPED_TEST(Listing, EqualsALoopWrittenByHand) {
  auto net = make_net<TypeParam>();
  train_by_listing(net, listing_loader());
  auto reference = make_net<TypeParam>();
  train_by_hand(reference, listing_loader());
  small_nets::expect_close_weights(*net, *reference);
}

TYPED_TEST(Listing, TrainsTheUsersOwnModule) {
  auto net = make_net<TypeParam>();
  const at::Tensor before = net->parameters().front().clone();
  train_by_listing(net, listing_loader());
  EXPECT_FALSE(torch::equal(net->parameters().front(), before));
}

}  // namespace
