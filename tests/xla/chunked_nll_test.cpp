// The loss of a large vocabulary on xla:0 and on the CPU, with its gradients.
#include "levin/models/losses/chunked_nll.h"

#include "tests/xla/on_both_devices.h"

namespace {

using namespace levin::test;  // NOLINT
using levin::models::nll_of_each;
using levin::models::nll_sum;
using levin::models::OutputLayer;

/// Hidden vectors, matrix, bias and labels, of which a third does not count.
std::function<OperatorTensors()> vocabulary_of(int64_t size, int64_t positions) {
  return [=] {
    at::Tensor labels = torch::randint(size, {positions}, at::kLong);
    labels.masked_fill_(at::arange(positions) % 3 == 1, levin::models::kNotCounted);
    return OperatorTensors{torch::randn({positions, 6}, at::kDouble),
                           torch::randn({size, 6}, at::kDouble), torch::randn({size}, at::kDouble),
                           labels};
  };
}

OperatorTensors all_forms(const OperatorTensors& t) {
  const OutputLayer plain{.matrix = t[1]}, biased{.matrix = t[1], .bias = t[2]},
      capped{.matrix = t[1], .bias = t[2], .softcap = 2}, frozen{.matrix = t[1].detach()};
  OperatorTensors results;
  for (const OutputLayer& output : {plain, biased, capped, frozen}) {
    results.push_back(nll_sum(t[0], output, t[3]));
    results.push_back(nll_of_each(t[0], output, t[3]));
  }
  return results;
}

TEST(ChunkedNllOnXla, EqualsTheCpu) {
  expect_same_on_both({.name = "one chunk",
                       .inputs = vocabulary_of(300, 12),
                       .function = all_forms,
                       .dtypes = kWide.first(1),
                       .with_gradients = true});
}

/// 24 million scores are two chunks. XLA sums 40,000 numbers one after the other where ATen sums in a tree.
TEST(ChunkedNllOnXla, EqualsTheCpuInChunks) {
  torch::manual_seed(3);
  const OperatorTensors given = vocabulary_of(40'000, 600)();
  const auto trained = [&](at::Device device) {
    OperatorTensors leaves;
    for (const at::Tensor& tensor : given) {
      leaves.push_back(tensor.is_floating_point() ? tensor.to(device, at::kFloat).requires_grad_()
                                                  : tensor.to(device));
    }
    const at::Tensor loss = nll_sum(leaves[0], {.matrix = leaves[1], .bias = leaves[2]}, leaves[3]);
    loss.backward();
    return OperatorTensors{loss.detach().cpu(), leaves[0].grad().cpu(), leaves[1].grad().cpu(),
                           leaves[2].grad().cpu()};
  };
  const OperatorTensors wanted = trained(at::kCPU), found = trained(xla_runtime().device());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double off = ((found[i] - wanted[i]).abs().max() / wanted[i].abs().max()).item<double>();
    EXPECT_LT(off, 1e-4) << i;
  }
}

/// Nobody looks at labels there, and a loss of NaN says that one is wrong.
TEST(ChunkedNllOnXla, ALabelThatIsNoRowGivesNaN) {
  const at::Device device = xla_runtime().device();
  const auto on = [&](const at::Tensor& tensor) { return tensor.to(device); };
  const at::Tensor each =
      nll_of_each(on(torch::randn({3, 4})), {.matrix = on(torch::randn({7, 4}))},
                  on(at::tensor({6, 7, -100}, at::kLong)))
          .cpu();
  EXPECT_TRUE(each.isnan().to(at::kLong).equal(at::tensor({0, 1, 0}, at::kLong)));
}

}  // namespace
