// Products that come again and again: ATen's bits, whichever kernel gives them.
#include "levin/graph/replay/repeated_product.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "levin/base/autocast.h"
#include "levin/graph/plain_calls.h"
#include "levin/graph/record/trace.h"
#include "tests/graph/against_eager.h"

namespace repeated_product_tests {
namespace {

using at::Tensor;
using levin::graph::repeated_product;
using levin::test::same_bits;

constexpr int kCalls = 40;  // before and after a size is tried

struct Operands {
  const char* name;
  Tensor a, b, added;
};

std::vector<Operands> operands() {
  torch::manual_seed(5);
  const auto drawn = [](at::IntArrayRef sizes) { return torch::randn(sizes).pow_(3); };
  return {{"rows", drawn({96, 128}), drawn({128, 256}), {}},
          {"transposed", drawn({96, 128}), drawn({256, 128}).t(), {}},
          {"bias", drawn({96, 128}), drawn({256, 128}).t(), drawn({256})},
          {"matrix added", drawn({96, 128}), drawn({128, 256}), drawn({96, 256})},
          {"columns", drawn({128, 96}).t(), drawn({128, 256}), {}},
          {"broadcast", drawn({1, 128}).expand({96, 128}), drawn({128, 256}), {}},
          {"small", drawn({3, 4}), drawn({4, 5}), drawn({5})},
          {"double", drawn({96, 128}).to(at::kDouble), drawn({128, 256}).to(at::kDouble), {}},
          {"none", drawn({0, 128}), drawn({128, 256}), {}}};
}

Tensor by_aten(const Operands& of) {
  return of.added.defined() ? at::addmm(of.added, of.a, of.b) : at::mm(of.a, of.b);
}

TEST(RepeatedProduct, GivesTheBitsOfATenBeforeAndAfterItWasTried) {
  const torch::NoGradGuard no_grad;
  for (const Operands& of : operands()) {
    const Tensor wanted = by_aten(of);
    for (int i = 0; i < kCalls; ++i)
      ASSERT_TRUE(same_bits(repeated_product(of.a, of.b, of.added), wanted)) << of.name << " " << i;
    of.a.numel() > 0 && of.a.stride(0) > 0 ? of.a.mul_(-1.5) : of.b.mul_(2);
    EXPECT_TRUE(same_bits(repeated_product(of.a, of.b, of.added), by_aten(of)))
        << of.name << ": of other numbers";
  }
}

TEST(RepeatedProduct, FollowsWhatAteNIsSetTo) {
  const torch::NoGradGuard no_grad;
  const Operands of = operands()[2];
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 1}) {
    at::set_num_threads(count);
    const Tensor wanted = by_aten(of);
    for (int i = 0; i < kCalls; ++i)
      ASSERT_TRUE(same_bits(repeated_product(of.a, of.b, of.added), wanted)) << count;
  }
  at::set_num_threads(threads);
}

TEST(RepeatedProduct, IsTheOperatorForGradientsAndForRecordings) {
  const Operands of = operands()[1];
  const Tensor a = of.a.clone().requires_grad_(), again = of.a.clone().requires_grad_();
  for (int i = 0; i < kCalls; ++i) repeated_product(a, of.b).sum().backward();
  for (int i = 0; i < kCalls; ++i) at::mm(again, of.b).sum().backward();
  EXPECT_TRUE(same_bits(a.grad(), again.grad()));
  const torch::NoGradGuard no_grad;
  const auto product = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    return {repeated_product(in[0], of.b)};
  };
  for (int i = 0; i < kCalls; ++i) product({of.a});
  const auto module = levin::trace(product, {of.a}, {.state = {{"b", of.b}}});
  EXPECT_NE(levin::graph::to_text(module.graph()).find("aten::mm"), std::string::npos)
      << levin::graph::to_text(module.graph());
}

TEST(RepeatedProduct, IsOfSeveralThreads) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(3, 0);
  for (size_t thread = 0; thread < wrong.size(); ++thread) {
    threads.emplace_back([&, thread] {
      const torch::NoGradGuard no_grad;
      const Tensor a = torch::randn({64, 96}), b = torch::randn({96, 160});
      const Tensor wanted = at::mm(a, b);
      for (int i = 0; i < kCalls; ++i)
        wrong[thread] += same_bits(repeated_product(a, b), wanted) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

TEST(PlainCalls, AreThoseThatNobodyLooksAt) {
  using levin::graph::has_plain_calls;
  EXPECT_FALSE(has_plain_calls()) << "gradients are on";
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(has_plain_calls());
  {
    const levin::AutocastScope scope(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
    EXPECT_FALSE(has_plain_calls());
  }
  bool in_a_recording = true;
  levin::trace(
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        in_a_recording = has_plain_calls();
        return {in[0] + 1};
      },
      {torch::ones({2})}, {});
  EXPECT_FALSE(in_a_recording);
}

}  // namespace
}  // namespace repeated_product_tests
