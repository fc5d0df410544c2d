#include "tools/graph/step_outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "levin/models/gpt2.h"
#include "tests/tools/step.h"

namespace {

using levin::graph::Graph;
using levin::graph::Node;
using levin::graph::Opcode;
using levin::test::mlp_step;
using levin::test::step_of;
using levin::tools::name_of;
using levin::tools::outline_of;
using levin::tools::StepOutline;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Not;

/// "forward 0 aten::addmm", without views.
std::vector<std::string> roles_in(const Graph& graph) {
  const StepOutline outline = outline_of(graph);
  std::vector<std::string> lines;
  for (const auto& cost : levin::graph::cost_of(graph, *levin::graph::find_device("cpu")).nodes) {
    const auto& role = outline.roles.at(cost.node);
    lines.push_back(std::string(name_of(role.phase)) + " " + role.module + " " +
                    std::string(cost.node->target()));
  }
  return lines;
}

/// The phases of the operators in their order, each stretch once.
std::vector<std::string> stretches_of(const Graph& graph) {
  const StepOutline outline = outline_of(graph);
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    if (node.opcode() != Opcode::kCallFunction) continue;
    const std::string name(name_of(outline.roles.at(&node).phase));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

TEST(StepOutline, GivesEachOperatorItsPhaseAndModule) {
  const auto step = mlp_step();
  EXPECT_THAT(roles_in(step.graph()),
              ElementsAre("forward 0 aten::addmm", "forward 0 aten::relu", "forward 2 aten::addmm",
                          "forward 2 aten::_log_softmax", "forward 2 aten::nll_loss_forward",
                          "backward 2 aten::ones_like", "backward 2 aten::nll_loss_backward",
                          "backward 2 aten::_log_softmax_backward_data", "backward 2 aten::mm",
                          "backward 2 aten::mm", "backward 2 aten::sum.dim_IntList",
                          "backward 0 aten::threshold_backward", "backward 0 aten::mm",
                          "backward 0 aten::sum.dim_IntList", "update  aten::add_.Scalar",
                          "update  aten::_fused_adamw_.tensor_lr"));
}

TEST(StepOutline, ClippingIsPartOfTheUpdate) {
  const auto step = mlp_step(1.0);
  EXPECT_THAT(stretches_of(step.graph()), ElementsAre("forward", "backward", "update"));
  EXPECT_THAT(roles_in(step.graph()), IsSupersetOf({"update  aten::_foreach_norm.Scalar",
                                                    "update  aten::_foreach_mul_.Tensor"}));
}

TEST(StepOutline, KnowsParametersByTheirGradientsAlone) {
  const auto step = mlp_step();
  const StepOutline outline = outline_of(step.graph());
  std::set<std::string> names;
  for (const Node* parameter : outline.parameters) names.insert(parameter->name());
  EXPECT_THAT(names, ElementsAre("0.bias", "0.weight", "2.bias", "2.weight"));
  EXPECT_EQ(levin::tools::num_parameters(outline), 32 * 64 + 64 + 64 * 8 + 8);
  EXPECT_EQ(outline.gradients.size(), 4U);
}

TEST(StepOutline, AnOptimizersStateBelongsToTheParametersModule) {
  const auto step = mlp_step();
  std::map<std::string, std::string> owners;
  for (const auto& [node, module] : outline_of(step.graph()).owners) owners[node->name()] = module;
  EXPECT_EQ(owners.at("exp_avg of 2.weight"), "2");
  EXPECT_EQ(owners.count("lr of adamw 0"), 0U);
}

TEST(StepOutline, BuffersThatTheForwardPassWritesAreForward) {
  torch::nn::Sequential net(torch::nn::Linear(8, 4), torch::nn::BatchNorm1d(4));
  const auto step =
      step_of(net, levin::optim::sgd({.lr = 0.1}), torch::randn({16, 8}), torch::randint(4, {16}));
  EXPECT_THAT(stretches_of(step.graph()), ElementsAre("forward", "backward", "update"));
  EXPECT_THAT(roles_in(step.graph()),
              IsSupersetOf({"forward 1 aten::add_.Scalar", "forward 1 aten::native_batch_norm",
                            "backward 1 aten::native_batch_norm_backward"}));
}

class TransformerOutline : public ::testing::Test {
 protected:
  levin::models::GPT2 net_{levin::models::GPT2Config{
      .vocab_size = 50, .n_positions = 8, .n_embd = 16, .n_layer = 2, .n_head = 2}};
  levin::graph::GraphModule step_ =
      step_of(net_, levin::optim::adamw({.lr = 0.01}), torch::randint(50, {3, 8}),
              torch::randint(50, {24}), 1.0);
};

TEST_F(TransformerOutline, HasThreeStretches) {
  EXPECT_THAT(stretches_of(step_.graph()), ElementsAre("forward", "backward", "update"));
}

TEST_F(TransformerOutline, BothSumsOfATiedGradientBelongToIt) {
  EXPECT_THAT(roles_in(step_.graph()),
              IsSupersetOf({"backward transformer.wte aten::embedding_dense_backward",
                            "backward transformer.wte aten::mm"}));
  EXPECT_THAT(roles_in(step_.graph()),
              Not(::testing::Contains("backward transformer.ln_f aten::mm")));
}

TEST_F(TransformerOutline, BackwardBelongsWhereForwardDid) {
  EXPECT_THAT(roles_in(step_.graph()),
              IsSupersetOf({"forward transformer.h.1.mlp.c_fc aten::gelu",
                            "backward transformer.h.1.mlp.c_fc aten::gelu_backward",
                            "forward transformer.h.0.ln_1 aten::native_layer_norm",
                            "backward transformer.h.0.ln_1 aten::native_layer_norm_backward"}));
}

}  // namespace
