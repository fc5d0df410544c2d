// Strategies that divide, on a module of which a part is frozen and stands in a file: that part stays in the file's map.
#include "levin/module/base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/files/memory_map.h"
#include "levin/shard/sharded_tensor.h"
#include "levin/strategy/ddp/agreement.h"
#include "tests/strategy/fsdp/trained.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace fsdp_base {
namespace {

using levin::test::connect;
using levin::test::error_of;
using levin::test::net_of_layers;
using levin::test::run_world;
using levin::test::some_inputs;
using levin::test::Trained;
using ::testing::Each;

/// The net's first two layers, by their names there.
const std::vector<std::string> kBase = {"0.weight", "0.bias", "2.weight", "2.bias"};

/// The net of layers, whose first two lie in that file's map and are frozen.
torch::nn::Sequential on_file(const std::filesystem::path& file, const std::string& digest = "aa") {
  torch::nn::Sequential net = net_of_layers();
  if (!std::filesystem::exists(file)) {
    levin::State weights;
    for (const std::string& name : kBase) weights.set(name, net->named_parameters()[name].detach());
    levin::save_weights(file, weights);
  }
  const levin::State weights = levin::load_weights(file);
  std::vector<at::Tensor> base;
  for (const std::string& name : kBase) {
    at::Tensor parameter = net->named_parameters()[name];
    parameter.set_data(weights.tensor(name));
    parameter.set_requires_grad(false);
    base.push_back(parameter);
  }
  levin::mark_base(net.ptr(), {.name = file.string(), .digest = [digest] { return digest; }}, base);
  return net;
}

std::vector<const void*> places(const torch::nn::Sequential& net) {
  std::vector<const void*> all;
  for (const std::string& name : kBase)
    all.push_back(net->named_parameters()[name].const_data_ptr());
  return all;
}

struct Case {
  std::string strategy, backend;
};

std::vector<Case> cases() {
  return {{"fsdp", "shm"},  {"fsdp", "gloo"}, {"zero", "shm"},
          {"zero", "gloo"}, {"ddp", "shm"},   {"ddp", "gloo"}};
}

class FrozenBase : public ::testing::TestWithParam<Case> {};

TEST_P(FrozenBase, StaysInTheMapOfItsFileAndRanksEqualOneRank) {
  const auto words = run_world(2, [&](int64_t rank, const auto& folder) -> std::string {
    const auto file = folder / ("base" + std::to_string(rank));  // each host's own
    Trained alone({}, on_file(file), {}, "single");
    Trained trained(connect(GetParam().backend), on_file(file), {}, GetParam().strategy);
    const auto before = places(trained.net);
    for (const void* place : before) {
      if (!levin::files::is_mapped(place)) return "a parameter left the file's map";
    }
    for (int64_t i = 0; i < 4; ++i) {
      alone.step(some_inputs(i));
      trained.step(some_inputs(i));
    }
    if (places(trained.net) != before) return "a parameter was moved";
    for (const std::string& name : kBase) {
      if (trained.net->named_parameters()[name].grad().defined()) return "a gradient of " + name;
    }
    if (!levin::test::same(levin::full(*trained.net), levin::full(*alone.net), 1e-6))
      return "differs from one rank";
    if (levin::full(*alone.net)
            .tensor("4.weight")
            .equal(net_of_layers()->named_parameters()["4.weight"]))
      return "nothing was trained";
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(All, FrozenBase, ::testing::ValuesIn(cases()), [](const auto& info) {
  return info.param.strategy + "_" + info.param.backend;
});

class DividedBase : public ::testing::TestWithParam<std::string> {};

bool is_divided(const torch::nn::Sequential& net, const char* name) {
  return levin::sharded(net->named_parameters()[name]).has_value();
}

TEST_P(DividedBase, IsDividedWhereTheRanksFilesDiffer) {
  const auto words = run_world(2, [&](int64_t rank, const auto& folder) -> std::string {
    const auto file = folder / ("base" + std::to_string(rank));
    Trained trained(connect(GetParam()), on_file(file, std::to_string(rank)));
    for (const std::string& name : kBase) {
      if (!is_divided(trained.net, name.c_str())) return name + " is whole";
    }
    trained.step(some_inputs());
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(DividedBase, IsTheSameOnAllRanksWhereOneTrainsAPart) {
  const auto words = run_world(2, [&](int64_t rank, const auto& folder) -> std::string {
    torch::nn::Sequential net = on_file(folder / ("base" + std::to_string(rank)));
    const auto group = connect(GetParam());
    net->named_parameters()["0.bias"].set_requires_grad(rank == 1);
    auto all = group;
    const auto same = levin::ddp::same_base(all, *net, /*in_place=*/true);
    if (same.size() != 3) return "same are " + std::to_string(same.size());
    return same.contains(net->named_parameters()["0.bias"].unsafeGetTensorImpl()) ? "with the bias"
                                                                                  : "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(DividedBase, IsDividedWhereItLiesInNoFile) {
  const auto words = run_world(2, [&](int64_t rank, const auto& folder) -> std::string {
    torch::nn::Sequential net = on_file(folder / ("base" + std::to_string(rank)));
    at::Tensor weight = net->named_parameters()["0.weight"];
    weight.set_data(weight.detach().clone());
    Trained trained(connect(GetParam()), net);
    if (!is_divided(trained.net, "0.weight")) return "0.weight is whole";
    return is_divided(trained.net, "0.bias") ? "0.bias is divided" : "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(DividedBase, UnfrozenLaterIsAnErrorThatNamesTheParameter) {
  const auto words = run_world(2, [&](int64_t rank, const auto& folder) -> std::string {
    Trained trained(connect(GetParam()), on_file(folder / ("base" + std::to_string(rank))));
    trained.step(some_inputs());
    trained.net->named_parameters()["2.bias"].set_requires_grad(true);
    const std::string error = error_of([&] { trained.step(some_inputs()); });
    if (error.find("strategy.fsdp.unfrozen: parameter 2.bias was frozen") == std::string::npos)
      return error;
    trained.net->named_parameters()["2.bias"].set_requires_grad(false);
    trained.step(some_inputs());
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(All, DividedBase, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fsdp_base
