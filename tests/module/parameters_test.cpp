#include "levin/module/parameters.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/error.h"

namespace {

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    first = register_module("first", torch::nn::Linear(3, 3));
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    register_parameter("head", first->weight);
  }
  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Tied);

std::string error_of(torch::nn::Module& module, const levin::State& state) {
  try {
    levin::load_module_state(module, state);
  } catch (const levin::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Parameters, ATiedOneComesOnce) {
  Tied net;
  EXPECT_EQ(levin::named_parameters(*net).size(), 4u);
  EXPECT_EQ(levin::module_state(*net).values().size(), 7u);
}

TEST(Parameters, StateGoesIntoAnotherModule) {
  Tied from, to;
  from->norm->running_mean.fill_(2.0);
  levin::load_module_state(*to, levin::module_state(*from));
  EXPECT_TRUE(torch::equal(from->first->weight, to->first->weight));
  EXPECT_TRUE(torch::equal(from->norm->running_mean, to->norm->running_mean));
  EXPECT_NE(from->first->weight.data_ptr(), to->first->weight.data_ptr());
}

TEST(Parameters, MistakesAreNamedAndChangeNothing) {
  Tied net;
  const at::Tensor before = net->first->bias.clone();
  levin::State state = levin::module_state(*Tied());
  state.erase("norm.bias");
  EXPECT_EQ(error_of(*net, state),
            "module.state.missing: the module has parameters that the weights lack: norm.bias");
  state.set("norm.bias", torch::zeros({4}));
  EXPECT_EQ(error_of(*net, state),
            "module.state.shape: weights of other shapes than the module's: norm.bias (got [4], "
            "wanted [3])");
  state.set("norm.bias", torch::zeros({3})).set("other", torch::zeros({1}));
  EXPECT_EQ(error_of(*net, state),
            "module.state.unexpected: the weights have names that the module lacks: other");
  EXPECT_TRUE(torch::equal(before, net->first->bias));
  EXPECT_NO_THROW(levin::load_module_state(*net, state, {.strict = false}));
}

}  // namespace
