#include "tools/xla/tpu_advice.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "levin/models/gpt2.h"
#include "tests/support/error_of.h"
#include "tests/tools/libtpu.h"
#include "tests/tools/step.h"

namespace {

using levin::test::error_of;
using levin::test::mlp_step;
using levin::test::step_of;
using levin::tools::advice_of;
using levin::tools::MatrixProduct;
using levin::tools::padded_bytes;
using levin::tools::products_of;
using levin::tools::tpu_slice;
using levin::tools::TpuAdvice;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(TpuSlice, HasTheCoresOfItsChips) {
  const std::pair<const char*, int64_t> cases[] = {
      {"v5e", 1}, {"v5e:2x4", 8}, {"v4:2x2x2", 16}, {"v6e:2x4", 8}, {"tpu7x:2x2x1", 8}};
  for (const auto& [name, cores] : cases) EXPECT_EQ(tpu_slice(name).num_cores, cores) << name;
}

TEST(TpuSlice, ThatIsNoneNamesTheKinds) {
  EXPECT_THAT(error_of([] { tpu_slice("v5d:2x4"); }),
              AllOf(StartsWith("tools.tpu: got 'v5d:2x4', wanted one of v2, v3, v4, v5e"),
                    HasSubstr("did you mean 'v5")));
  for (const char* name : {"v5e:", "v5e:2x", "v5e:x4", "v5e:0x4", "v5e:2*4", "v5e:2x99999"}) {
    EXPECT_THAT(error_of([&] { tpu_slice(name); }),
                HasSubstr("wanted the chips after the colon as in v5e:2x4"))
        << name;
  }
}

class TpuMemory : public levin::test::WithLibtpu {};

struct PaddedCase {
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  int64_t bytes;
};
std::vector<PaddedCase> padded_cases() {
  return {{{8, 128}, at::kFloat, 4096},
          {{9, 128}, at::kFloat, 8192},
          {{3, 128}, at::kFloat, 2048},
          {{1000, 130}, at::kFloat, 557056},
          {{9, 1000}, at::kFloat, 65536},
          {{17, 128}, at::kBFloat16, 6144},
          {{1000, 130}, at::kBFloat16, 278528},
          {{768}, at::kFloat, 4096},
          {{10}, at::kBFloat16, 256},
          {{10, 784}, at::kFloat, 57344},
          {{50257, 768}, at::kFloat, 154411008},
          {{64, 3, 3, 3}, at::kFloat, 18432},
          {{12, 64, 64, 5}, at::kFloat, 1966080},
          {{}, at::kFloat, 512}};
}

TEST(TpuPadding, FillsTiles) {
  for (const PaddedCase& one : padded_cases()) {
    EXPECT_EQ(padded_bytes(one.sizes, one.dtype), one.bytes) << c10::IntArrayRef(one.sizes);
  }
  EXPECT_EQ(padded_bytes({0, 5}, at::kFloat), 0);
}

TEST_F(TpuMemory, IsFilledUpAsTheCompilerDoes) {
  const auto chip = topology("v5e:2x2");
  for (const PaddedCase& one : padded_cases()) {
    std::string type = "tensor<";
    for (const int64_t size : one.sizes) type += std::to_string(size) + "x";
    type += one.dtype == at::kFloat ? "f32>" : "bf16>";
    const auto program =
        chip.compile("module @twice { func.func @main(%a: " + type + ") -> " + type +
                     " { %z = stablehlo.add %a, %a : " + type + " return %z : " + type + " }}");
    // In memory nothing is smaller than 512 bytes.
    EXPECT_EQ(program.memory()->arguments, std::max<int64_t>(512, one.bytes)) << type;
  }
}

TEST(TpuPadding, RoundsProductsUpTheCheaperWay) {
  const auto padded = [](MatrixProduct product) { return product.padded().text(); };
  EXPECT_EQ(padded({.rows = 1024, .inner = 768, .columns = 50257}), "1024 x 768 x 50264");
  EXPECT_EQ(padded({.rows = 100, .inner = 768, .columns = 50257}), "104 x 768 x 50304");
  EXPECT_EQ(padded({.rows = 64, .inner = 128, .columns = 10}), "128 x 128 x 16");
  EXPECT_EQ(padded({.count = 12, .rows = 256, .inner = 64, .columns = 256}),
            "12 of 256 x 128 x 256");
}

std::vector<MatrixProduct> first_products(const std::string& call) {
  const auto graph = levin::graph::parse(call);
  for (const auto& node : graph.nodes()) {
    if (node.opcode() == levin::graph::Opcode::kCallFunction) return products_of(node);
  }
  return {};
}

TEST(TpuPadding, KnowsTheProductsOfOperators) {
  EXPECT_THAT(first_products(R"(%x = placeholder["x"] : f32[3, 4, 5]
%y = placeholder["y"] : f32[3, 5, 6]
%z = aten::bmm(%x, %y) : f32[3, 4, 6]
return %z
)"),
              ElementsAre(MatrixProduct{.count = 3, .rows = 4, .inner = 5, .columns = 6}));
  EXPECT_THAT(first_products(R"(%x = placeholder["x"] : f32[2, 3, 8, 8]
%w = placeholder["w"] : f32[16, 3, 3, 3]
%z = aten::convolution(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : f32[2, 16, 6, 6]
return %z
)"),
              ElementsAre(MatrixProduct{.count = 324, .rows = 2, .inner = 3, .columns = 16}));
  EXPECT_TRUE(first_products(R"(%x = placeholder["x"] : f32[4]
%z = aten::exp(%x) : f32[4]
return %z
)")
                  .empty());
}

TEST(TpuAdvice, CountsWhatProductsLose) {
  const TpuAdvice advice = advice_of(mlp_step().graph(), tpu_slice("v5e:2x4"), 10);
  ASSERT_FALSE(advice.inputs.empty());
  EXPECT_EQ(advice.inputs[0].batch_size, 16);
  EXPECT_EQ(advice.float32_flops, advice.product_flops);
  EXPECT_GT(advice.padded_flops, advice.product_flops);
  EXPECT_EQ(advice.plan.num_parameters, 32 * 64 + 64 + 64 * 8 + 8);
  EXPECT_GT(advice.padded_state_bytes, advice.state_bytes);
  double loss = advice.padded_flops;
  for (const auto& product : advice.products) {
    EXPECT_LE(product.padded - product.flops, loss);
    loss = product.padded - product.flops;
    EXPECT_GT(loss, 0.0);
  }
  EXPECT_EQ(advice_of(mlp_step().graph(), tpu_slice("v5e"), 2).products.size(), 2U);
}

TEST(TpuAdvice, SaysWhatToSet) {
  const std::string text = to_text(advice_of(mlp_step().graph(), tpu_slice("v5e:2x4"), 10));
  EXPECT_THAT(text, StartsWith("a step of 2.63 k parameters on v5e:2x4: 8 cores, each at 197 T"));
  EXPECT_THAT(text, HasSubstr("is f32[16, 32] on each core, 128 samples over all cores\n"
                              "  a multiple of 8, which fills a tile's rows\n"));
  EXPECT_THAT(text, HasSubstr("dtypes: 100 % of the matrix products are not in bfloat16"));
  EXPECT_THAT(text, HasSubstr("16 x 64 x 8"));
  EXPECT_THAT(text, HasSubstr("fits as recorded"));
  EXPECT_THAT(text, Not(HasSubstr("float64")));
}

TEST(TpuAdvice, NamesBatchesThatFillNoTile) {
  torch::nn::Sequential net(torch::nn::Linear(32, 8));
  net->to(torch::kDouble);
  const auto step = step_of(net, levin::optim::sgd({.lr = 0.1}),
                            torch::randn({3, 32}, torch::kDouble), torch::randint(8, {3}));
  const std::string text = to_text(advice_of(step.graph(), tpu_slice("v6e"), 10));
  EXPECT_THAT(text, HasSubstr("3 is not a multiple of 8"));
  EXPECT_THAT(text, HasSubstr("62 % of them are padding; set the batch size to 8"));
  EXPECT_THAT(text, HasSubstr("some tensors are float64"));
}

TEST(TpuAdvice, SaysThatACoreDoesNotHoldIt) {
  const auto graph = levin::graph::parse(R"(%x = placeholder["x"] : f32[100000, 100000]
%exp = aten::exp(%x) : f32[100000, 100000]
return %exp
)");
  EXPECT_THAT(to_text(advice_of(graph, tpu_slice("v5e:2x2"), 10)),
              AllOf(HasSubstr("does not fit as recorded"), HasSubstr("activation checkpointing")));
}

TEST(TpuAdvice, IsAlsoJson) {
  const auto json =
      nlohmann::json::parse(to_json(advice_of(mlp_step().graph(), tpu_slice("v4:2x2x2"), 10)));
  EXPECT_EQ(json.at("cores").get<int>(), 16);
  EXPECT_GT(json.at("filled_product_flops").get<double>(), json.at("product_flops").get<double>());
  EXPECT_EQ(json.at("products").at(0).at("sizes").size(), 4U);
}

TEST(TpuAdvice, CountsAttentionTwiceAndItsBackwardFiveTimes) {
  levin::models::GPT2 net(levin::models::GPT2Config{.vocab_size = 20,
                                                    .n_positions = 12,
                                                    .n_embd = 16,
                                                    .n_layer = 1,
                                                    .n_head = 2,
                                                    .resid_pdrop = 0.0,
                                                    .embd_pdrop = 0.0,
                                                    .attn_pdrop = 0.0});
  const auto step = step_of(net, levin::optim::sgd({.lr = 0.1}), torch::randint(20, {4, 12}),
                            torch::randint(20, {48}));
  const auto count = [&](std::string_view target) {
    return products_of(*step.graph().find_nodes(target).at(0)).size();
  };
  EXPECT_EQ(count("aten::_scaled_dot_product_flash_attention_for_cpu"), 2U);
  EXPECT_EQ(count("aten::_scaled_dot_product_flash_attention_for_cpu_backward"), 5U);
}

}  // namespace
