// Products by other kernels than ATen's: the same bits, or not at all.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <iterator>
#include <string>

#include "levin/graph/record/trace.h"
#include "levin/graph/replay/matmul_choice_impl.h"
#include "levin/graph/replay/matmul_impl.h"
#include "levin/graph/replay/replay.h"
#include "tests/graph/against_eager.h"

namespace {

using at::Tensor;
using levin::graph::Matmul;
using levin::graph::matmul_operands;
using levin::graph::MatmulChoice;
using levin::graph::Replay;
using levin::test::same_bits;

struct Product {
  int64_t m = 0, k = 0, n = 0;
  bool transposes_a = false, transposes_b = false;
  int added_dim = 0;    ///< none: 0
  int64_t batches = 0;  ///< of matrices: 0
};

std::ostream& operator<<(std::ostream& out, const Product& product) {
  return out << product.m << "x" << product.k << "x" << product.n << " transposed "
             << product.transposes_a << product.transposes_b << " added " << product.added_dim
             << " batches " << product.batches;
}

/// Layers of a network, forwards and backwards, and shapes that tiles and blocks do not divide.
std::vector<Product> products() {
  const std::vector<std::array<int64_t, 3>> shapes = {
      {32, 64, 128},  {32, 128, 10}, {10, 32, 128}, {128, 32, 64}, {1, 64, 32},   {64, 1, 33},
      {129, 65, 257}, {64, 200, 96}, {33, 301, 65}, {48, 512, 64}, {17, 784, 40}, {300, 40, 520}};
  std::vector<Product> products;
  for (const auto& [m, k, n] : shapes) {
    for (const auto& [of_a, of_b] : {std::pair(false, false), {false, true}, {true, false}}) {
      for (const int dim : {0, 1, 2}) products.push_back({m, k, n, of_a, of_b, dim});
    }
  }
  products.push_back({32, 64, 128, true, true, 0});
  for (const int added_dim : {0, 3}) {  // of attention: scores, values, and their gradients
    products.push_back({24, 32, 24, false, true, added_dim, 6});
    products.push_back({24, 24, 32, false, false, added_dim, 6});
    products.push_back({24, 24, 32, true, false, added_dim, 6});
    products.push_back({65, 200, 33, true, true, added_dim, 2});
  }
  return products;
}

/// Matrices whose memory begins that many floats behind where it is aligned.
Tensor matrix(int64_t batches, int64_t rows, int64_t columns, bool is_transposed, int64_t offset) {
  const int64_t count = std::max<int64_t>(batches, 1), numel = count * rows * columns;
  const Tensor memory = torch::empty({offset + numel}).narrow(0, offset, numel);
  const Tensor matrices = is_transposed ? memory.view({count, columns, rows}).transpose(1, 2)
                                        : memory.view({count, rows, columns});
  return batches > 0 ? matrices : matrices.squeeze(0);
}

struct Call {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;

  explicit Call(const Product& product, int64_t offset = 0)
      : op(c10::Dispatcher::singleton().findSchemaOrThrow(
            product.batches > 0 ? (product.added_dim > 0 ? "aten::baddbmm" : "aten::bmm")
                                : (product.added_dim > 0 ? "aten::addmm" : "aten::mm"),
            "out")) {
    const auto [m, k, n, transposes_a, transposes_b, added_dim, batches] = product;
    if (added_dim > 0) {
      const Tensor added = matrix(batches, added_dim > 1 ? m : 1, n, false, offset);
      arguments.emplace_back(added_dim > 1 ? added : added.view({n}));
    }
    arguments.emplace_back(matrix(batches, m, k, transposes_a, offset));
    arguments.emplace_back(matrix(batches, k, n, transposes_b, offset));
    if (added_dim > 0) arguments.insert(arguments.end(), {1, 1});
    arguments.emplace_back(matrix(batches, m, n, false, 0));
  }

  Tensor result() const {
    torch::jit::Stack stack = arguments;
    op.callBoxed(&stack);
    return stack.front().toTensor().clone();
  }
  Tensor result_in_blocks(int64_t block_k) const {
    const auto operands = *matmul_operands(op, arguments);
    Matmul(operands, block_k, torch::empty({Matmul::scratch_numel(operands, block_k)}))();
    return operands.out.clone();
  }
};

/// Small and large ones, numbers below the normal ones, and zeros of both signs.
void draw(const Call& call) {
  for (const auto& argument : call.arguments) {
    if (!argument.isTensor()) continue;
    const Tensor& tensor = argument.toTensor();
    const Tensor scale = torch::randint(-30, 31, tensor.sizes()).exp2();
    tensor.copy_(torch::randn_like(tensor) * scale);
    tensor.masked_fill_(torch::rand_like(tensor) < 0.05, 1e-41).mul_(torch::randn_like(tensor));
    tensor.masked_fill_(torch::rand_like(tensor) < 0.05, -0.0);
  }
}

bool is_of_amd() {
  std::ifstream in("/proc/cpuinfo");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  return text.find("AuthenticAMD") != std::string::npos;
}

TEST(Matmul, GivesTheBitsOfATenInTheBlocksThatAreChosen) {
  if (!Matmul::is_available()) GTEST_SKIP() << "no kernels of oneDNN's for this processor";
  torch::manual_seed(3);
  MatmulChoice choice;
  int num_chosen = 0;
  for (const Product& product : products()) {
    const Call like(product);
    const auto block_k = choice.equal_block_k(like.op, like.arguments);
    if (!block_k) continue;
    ++num_chosen;
    for (const int64_t offset : {0, 1, 2, 7}) {
      const Call call(product, offset);
      draw(call);
      EXPECT_TRUE(same_bits(call.result_in_blocks(*block_k), call.result()))
          << product << " in blocks of " << *block_k << " at " << offset;
    }
  }
  RecordProperty("chosen", num_chosen);
  // There MKL's order is known (bench/peers/README.md); another's may be none that is tried.
  EXPECT_GE(num_chosen, is_of_amd() ? 20 : 0) << "of " << products().size();
}

TEST(Matmul, InOtherBlocksGivesOtherBits) {
  if (!Matmul::is_available()) GTEST_SKIP() << "no kernels of oneDNN's for this processor";
  for (const int64_t numel : {1, 4, 64}) {
    const Call call({.m = numel, .k = 64, .n = 64});
    draw(call);
    EXPECT_FALSE(same_bits(call.result_in_blocks(32), call.result_in_blocks(64))) << numel;
  }
}

TEST(Matmul, IsCloseToTheProductInDoublePrecision) {
  if (!Matmul::is_available()) GTEST_SKIP() << "no kernels of oneDNN's for this processor";
  for (const Product& product : products()) {
    const Call call(product);
    for (const auto& argument : call.arguments) {
      if (argument.isTensor()) argument.toTensor().normal_();
    }
    const auto operands = *matmul_operands(call.op, call.arguments);
    Tensor wanted = operands.a.to(torch::kDouble).matmul(operands.b.to(torch::kDouble));
    if (operands.added.defined()) wanted += operands.added;
    const Tensor came = call.result_in_blocks((product.k + 2) / 3).to(torch::kDouble);
    EXPECT_TRUE(torch::allclose(came, wanted, 1e-4, 1e-3)) << product;
  }
}

TEST(Matmul, TakesNoOtherOperands) {
  const Call plain({.m = 4, .k = 4, .n = 4, .added_dim = 1});
  ASSERT_TRUE(matmul_operands(plain.op, plain.arguments));
  const auto takes = [&](size_t argument, const c10::IValue& other) {
    torch::jit::Stack arguments = plain.arguments;
    arguments[argument] = other;
    return matmul_operands(plain.op, arguments).has_value();
  };
  EXPECT_TRUE(takes(1, torch::ones({4, 8}).narrow(1, 2, 4)));
  EXPECT_TRUE(takes(3, 1.0));
  EXPECT_FALSE(takes(3, 2));                                      // beta
  EXPECT_FALSE(takes(4, 0.5));                                    // alpha
  EXPECT_FALSE(takes(0, torch::ones({1})));                       // added, broadcast
  EXPECT_FALSE(takes(0, torch::ones({1, 4})));                    // added, broadcast
  EXPECT_FALSE(takes(1, torch::ones({4, 4}, torch::kDouble)));    // a
  EXPECT_FALSE(takes(1, torch::ones({1, 4}).expand({4, 4})));     // a, rows in one place
  EXPECT_FALSE(takes(2, torch::ones({4, 8}).slice(1, 0, 8, 2)));  // b, neither contiguous
  EXPECT_FALSE(takes(5, torch::ones({4, 4}).t()));                // out
  const Call empty({.m = 4, .k = 0, .n = 4});
  EXPECT_FALSE(matmul_operands(empty.op, empty.arguments));
}

/// A network whose products are large enough to be worth a choice.
struct TwoProducts {
  Tensor weight = torch::randn({192, 256}), bias = torch::randn({192});
  Tensor x = torch::randn({64, 256});

  Tensor operator()(const Tensor& input) const {
    return torch::linear(input, weight, bias).relu().mm(weight);
  }
  Replay replay() const {
    return Replay(
        levin::trace(*this, {x}, {.state = {{"weight", weight}, {"bias", bias}}}).graph());
  }
};

TEST(Matmul, InAReplayFollowsWhatAteNIsSetTo) {
  const TwoProducts net;
  Replay replay = net.replay();
  EXPECT_TRUE(same_bits(replay({net.x}).front(), net(net.x)));
  const int num_threads = at::get_num_threads();
  at::set_num_threads(num_threads + 1);
  EXPECT_TRUE(same_bits(replay({net.x}).front(), net(net.x)));
  at::set_num_threads(num_threads);
  const bool has_onednn = at::globalContext().userEnabledMkldnn();
  at::globalContext().setUserEnabledMkldnn(false);
  EXPECT_TRUE(same_bits(replay({net.x}).front(), net(net.x)));
  // Which products it chooses, if any, is a matter of time.
  EXPECT_TRUE(same_bits(net.replay()({net.x}).front(), net(net.x)));
  at::globalContext().setUserEnabledMkldnn(has_onednn);
  EXPECT_TRUE(same_bits(replay({net.x}).front(), net(net.x)));
}

}  // namespace
