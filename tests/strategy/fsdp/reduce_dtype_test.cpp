// Units whose gradients are reduced in another dtype than those of other units.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>

#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/strategy/strategy.h"
#include "tests/support/world.h"

namespace levin::test {
namespace {

using ::testing::Each;
namespace fs = std::filesystem;

constexpr int64_t kLarge = 70'000;  // elements: gradients that are computed in place otherwise

/// A parameter whose gradient is the input.
struct Scale : torch::nn::Module {
  at::Tensor weight;

  explicit Scale(int64_t numel) { weight = register_parameter("weight", torch::ones({numel})); }
  at::Tensor forward(const at::Tensor& x) const { return (weight * x).sum(); }
};

struct Scales : torch::nn::Module {
  std::shared_ptr<Scale> rounded, exact, large;

  Scales() {
    rounded = register_module("rounded", std::make_shared<Scale>(5));
    exact = register_module("exact", std::make_shared<Scale>(5));
    large = register_module("large", std::make_shared<Scale>(kLarge));
    wrap(rounded, {.reduce_dtype = at::kBFloat16});
    wrap(exact);
    wrap(large, {.reduce_dtype = at::kBFloat16});
  }
  at::Tensor forward(const at::Tensor& x) const {
    return rounded->forward(x) + exact->forward(x) + large->forward(x.expand({kLarge}));
  }
};

class ReduceDtype : public ::testing::TestWithParam<std::string> {};

// 1 + 2^-9 needs more digits than bfloat16 has.
TEST_P(ReduceDtype, IsThatOfTheUnitAndTheGradientIsInTheParametersDtype) {
  const auto words = run_world(2, [&](int64_t rank, const fs::path&) -> std::string {
    const auto net = std::make_shared<Scales>();
    const comm::ProcessGroup group = connect(GetParam());
    const auto strategy = make_strategy("fsdp", {.group = group});
    strategy->setup(*net, at::kCPU);
    const at::Tensor x = torch::full({1}, rank == 0 ? 1.0F : 0.001953125F);
    for (int64_t batch = 1; batch <= 2; ++batch) {  // the second one's gradient is added
      at::Tensor loss;
      {
        const auto scope = strategy->compute_scope();
        loss = net->forward(x);
      }
      strategy->backward(loss, /*synchronize=*/true);
      const auto has = [&](const Scale& scale, double wanted) {
        const at::Tensor& gradient = scale.weight.grad();
        return gradient.scalar_type() == at::kFloat && gradient.sizes() == scale.weight.sizes() &&
               at::equal(gradient, torch::full_like(gradient, wanted * static_cast<double>(batch)));
      };
      if (!has(*net->exact, 0.5 + 0.0009765625)) return "exact";
      if (!has(*net->rounded, 0.5)) return "rounded";
      if (!has(*net->large, 0.5)) return "large";
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(ReduceDtype, ComesBeforeReduceInFloat32) {
  const auto words = run_world(2, [&](int64_t, const fs::path&) -> std::string {
    const auto net = std::make_shared<Scales>();
    net->to(at::kHalf);
    const comm::ProcessGroup group = connect(GetParam());
    const auto bytes = [&] {
      for (const auto& total : group.totals()) {
        if (total.name == "reduce_scatter") return total.bytes;
      }
      return int64_t{0};
    };
    const auto strategy =
        make_strategy("fsdp", {.group = group, .fsdp = {.reduce_in_float32 = true}});
    strategy->setup(*net, at::kCPU);
    at::Tensor loss;
    {
      const auto scope = strategy->compute_scope();
      loss = net->forward(torch::ones({1}, at::kHalf));
    }
    strategy->backward(loss, /*synchronize=*/true);
    // float32 for the unit that says nothing, bfloat16 for the others
    return bytes() == 5 * 4 + (5 + kLarge) * 2 ? "" : std::to_string(bytes());
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Backends, ReduceDtype, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace levin::test
