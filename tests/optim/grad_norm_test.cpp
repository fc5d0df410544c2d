// Norms of gradients by parameter, by layer and of all, of whole and of sharded parameters.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "levin/optim/optim.h"
#include "tests/support/divided.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace grad_norm_tests {
namespace {

using levin::NamedTensor;
using levin::comm::DeviceMesh;
using levin::comm::MeshShape;
using levin::optim::grad_norm;
using levin::test::error_of;
using ::testing::Each;
using ::testing::StartsWith;

NamedTensor parameter(const std::string& name, const at::Tensor& gradient) {
  at::Tensor leaf = torch::zeros(gradient.sizes(), gradient.options()).requires_grad_();
  leaf.mutable_grad() = gradient;
  return {name, leaf};
}

std::string text_of(const std::vector<NamedTensor>& norms) {
  std::string text;
  for (const NamedTensor& norm : norms) {
    text += fmt::format("{}={:g} ", norm.name, norm.tensor.item<double>());
  }
  return text;
}

std::vector<NamedTensor> small() {
  return {parameter("net.0.weight", torch::tensor({{3.0f, 0.0f}, {0.0f, -4.0f}})),
          parameter("net.0.bias", torch::tensor({12.0f})),
          parameter("scale", torch::tensor(84.0f))};
}

TEST(GradNorm, IsOfEachParameterAndOfAll) {
  EXPECT_EQ(text_of(grad_norm(small())),
            "grad_2.0_norm/net.0.weight=5 grad_2.0_norm/net.0.bias=12 grad_2.0_norm/scale=84 "
            "grad_2.0_norm_total=85 ");
  EXPECT_EQ(text_of(grad_norm(small(), {.norm_type = 1.0, .group_separator = "."})),
            "grad_1.0_norm.net.0.weight=7 grad_1.0_norm.net.0.bias=12 grad_1.0_norm.scale=84 "
            "grad_1.0_norm_total=103 ");
  EXPECT_EQ(text_of(grad_norm(small(), {.norm_type = std::numeric_limits<double>::infinity()})),
            "grad_inf_norm/net.0.weight=4 grad_inf_norm/net.0.bias=12 grad_inf_norm/scale=84 "
            "grad_inf_norm_total=84 ");
}

TEST(GradNorm, IsOfEachLayerOrOfAllAlone) {
  EXPECT_EQ(text_of(grad_norm(small(), {.by = "layer"})),
            "grad_2.0_norm/net.0=13 grad_2.0_norm/scale=84 grad_2.0_norm_total=85 ");
  EXPECT_EQ(text_of(grad_norm(small(), {.by = "total"})), "grad_2.0_norm_total=85 ");
}

TEST(GradNorm, LeavesOutWhatHasNoGradient) {
  auto parameters = small();
  parameters.push_back({"unused", torch::zeros({2}).requires_grad_()});
  EXPECT_EQ(grad_norm(parameters).size(), 4u);
  EXPECT_TRUE(grad_norm({{"unused", torch::zeros({2}).requires_grad_()}}).empty());
}

TEST(GradNorm, OfAHalfTypeIsComputedInFloat) {
  const auto norms = grad_norm({parameter("half", torch::full({40000}, 1000.0, at::kHalf))});
  EXPECT_EQ(norms[0].tensor.scalar_type(), at::kFloat);
  EXPECT_NEAR(norms[0].tensor.item<double>(), 2e5, 20.0);
  EXPECT_EQ(grad_norm({parameter("x", torch::ones({4}, at::kDouble))})[0].tensor.scalar_type(),
            at::kDouble);
}

/// The fast path takes all norms by one foreach operator.
TEST(GradNorm, EqualsThatOfOneGradientAfterTheOther) {
  torch::manual_seed(3);
  std::vector<NamedTensor> parameters;
  for (int64_t i = 0; i < 9; ++i) {
    parameters.push_back(parameter("p" + std::to_string(i), torch::randn({i + 1, 7})));
  }
  for (const double norm_type : {0.5, 1.0, 2.0, 3.0}) {
    const auto norms = grad_norm(parameters, {.norm_type = norm_type});
    double sum = 0.0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor all = parameters[i].tensor.grad().to(at::kDouble).abs().pow(norm_type).sum();
      sum += all.item<double>();
      const double slow = std::pow(all.item<double>(), 1.0 / norm_type);
      EXPECT_NEAR(norms[i].tensor.item<double>(), slow, 1e-6 * slow);
    }
    const double slow = std::pow(sum, 1.0 / norm_type);
    EXPECT_NEAR(norms.back().tensor.item<double>(), slow, 1e-6 * slow);
  }
}

TEST(GradNorm, OfShardedParametersIsThatOfTheWhole) {
  for (const int64_t ranks : {2, 3}) {
    const auto words = levin::test::run_world(ranks, [&](int64_t, const auto&) -> std::string {
      const auto group = levin::test::connect();
      const DeviceMesh mesh(group, MeshShape{{"dp", ranks}});
      torch::manual_seed(5);
      std::vector<NamedTensor> wholes, parts;
      for (const char* name : {"a.weight", "a.bias", "b.weight"}) {
        wholes.push_back(parameter(name, torch::randn({5, 4})));
        parts.push_back({name, wholes.back().tensor.detach().clone().requires_grad_()});
      }
      const auto divided = levin::test::divide(parts, mesh);
      for (size_t i = 0; i < parts.size(); ++i) {
        parts[i].tensor.mutable_grad() =
            levin::test::own_of(parts[i].tensor, wholes[i].tensor.grad()).clone();
      }
      // One that every rank has whole counts once.
      wholes.push_back(parameter("c", torch::randn({3})));
      parts.push_back(wholes.back());
      for (const char* by : {"parameter", "layer", "total"}) {
        for (const double norm_type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
          const auto got = grad_norm(parts, {.norm_type = norm_type, .by = by});
          const auto wanted = grad_norm(wholes, {.norm_type = norm_type, .by = by});
          if (got.size() != wanted.size()) return "other names";
          for (size_t i = 0; i < got.size(); ++i) {
            if (got[i].name != wanted[i].name) return got[i].name + " is not " + wanted[i].name;
            if (!torch::allclose(got[i].tensor, wanted[i].tensor, 1e-6)) {
              return text_of({got[i], wanted[i]});
            }
          }
        }
      }
      return "";
    });
    EXPECT_THAT(words, Each("")) << ranks << " ranks";
  }
}

TEST(GradNorm, OptionsOutOfRangeAreRefused) {
  EXPECT_THAT(error_of([] { grad_norm({}, {.norm_type = 0.0}); }),
              StartsWith("optim.grad_norm: got norm_type = 0"));
  EXPECT_THAT(error_of([] { grad_norm({}, {.by = "module"}); }),
              StartsWith("optim.grad_norm: got by = 'module', wanted parameter, layer or total"));
}

}  // namespace
}  // namespace grad_norm_tests
