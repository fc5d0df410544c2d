#include "levin/module/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "levin/base/error.h"
#include "levin/base/log_sink.h"
#include "tests/support/divided.h"
#include "tests/support/world.h"

namespace {

using levin::comm::DeviceMesh;

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

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
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
            "module.state.shape: weights have other shapes than the module's parameters: norm.bias "
            "(got [4], "
            "wanted [3])");
  state.set("norm.bias", torch::zeros({3})).set("other", torch::zeros({1}));
  EXPECT_EQ(error_of(*net, state),
            "module.state.unexpected: the weights have names that the module lacks: other");
  EXPECT_TRUE(torch::equal(before, net->first->bias));
  EXPECT_NO_THROW(levin::load_module_state(*net, state, {.strict = false}));
}

/// The state with each name put into another form.
levin::State renamed(const levin::State& state,
                     const std::function<std::string(std::string)>& name) {
  levin::State other;
  for (const auto& [key, value] : state.values()) other.set(name(key), state.tensor(key));
  return other;
}

TEST(Parameters, APrefixThatOneOfBothHasIsShownWithNamesOfBoth) {
  Tied net;
  const levin::State state = levin::module_state(*net);
  const auto said_with = [&](const std::string& prefix) {
    return error_of(*net, renamed(state, [&](const std::string& name) { return prefix + name; }));
  };
  EXPECT_THAT(said_with("module."),
              ::testing::HasSubstr("; 7 of the weights have the prefix 'module.', as "
                                   "DistributedDataParallel saves them: module.first.bias for "
                                   "first.bias; remove it from the names"));
  EXPECT_THAT(said_with("_orig_mod."), ::testing::HasSubstr("as torch.compile saves them"));
  EXPECT_THAT(said_with("model."), ::testing::HasSubstr("prefix 'model.', as a Lightning"));
  EXPECT_THAT(said_with("student.net."),
              ::testing::HasSubstr("have the prefix 'student.net.': "
                                   "student.net.first.bias for first.bias"));
  torch::nn::ModuleList outer(net);
  EXPECT_THAT(error_of(*outer, state),
              ::testing::HasSubstr("; 7 of the weights lack the prefix '0.': "
                                   "first.bias for 0.first.bias; load them into that submodule"));
  EXPECT_THAT(error_of(*net, renamed(state,
                                     [](std::string name) {
                                       return name.insert(name.find('.') + 1, "_orig_mod.");
                                     })),
              ::testing::HasSubstr("'_orig_mod.' within names, as torch.compile saves them: "));
  EXPECT_THAT(error_of(*net, renamed(state, [](const std::string& name) { return "x" + name; })),
              ::testing::HasSubstr("; instead, the weights have xfirst.bias, xhead, "
                                   "xnorm.bias, xnorm.num_batches_tracked, and 3 more"));
}

/// What a load says on standard error, or the error that it ends by.
std::string said_by(torch::nn::Module& module, const levin::State& state,
                    const levin::LoadOptions& options = {}) {
  ::testing::internal::CaptureStderr();
  std::string thrown;
  try {
    levin::load_module_state(module, state, options);
  } catch (const levin::Error& error) {
    thrown = error.what();
  }
  return ::testing::internal::GetCapturedStderr() + thrown;
}

TEST(Parameters, CastsAreOneWarning) {
  Tied net;
  levin::State state = levin::module_state(*Tied());
  state.set("first.weight", torch::full({3, 3}, 0.1, torch::kDouble));
  state.set("norm.bias", torch::zeros({3}, torch::kHalf));
  state.set("norm.weight", torch::ones({3}, torch::kHalf));
  EXPECT_EQ(said_by(*net, state),
            "levin warn: weights: 2 tensors are cast from Half to the module's Float (norm.bias, "
            "norm.weight); 1 tensor is cast from Double to the module's Float (first.weight)\n");
  EXPECT_TRUE(torch::equal(net->first->weight, torch::full({3, 3}, 0.1F)));
  EXPECT_EQ(said_by(*net, levin::module_state(*Tied())), "");
}

TEST(Parameters, ACastToFewerBitsIsSaidToo) {
  torch::nn::Linear from(2, 3), to(2, 3);
  to->to(torch::kBFloat16);
  EXPECT_EQ(said_by(*to, levin::module_state(*from)),
            "levin warn: weights: 2 tensors are cast from Float to the module's BFloat16 (bias, "
            "weight)\n");
  EXPECT_TRUE(torch::equal(to->weight, from->weight.to(torch::kBFloat16)));
}

TEST(Parameters, EitherNameOfATiedWeightIsEnough) {
  const at::Tensor weight = torch::full({3, 3}, 2.0);
  for (const char* name : {"first.weight", "head"}) {
    Tied net;
    levin::State state = levin::module_state(*Tied());
    state.erase("head");
    state.set(name, weight);
    EXPECT_EQ(said_by(*net, state), "");
    EXPECT_TRUE(torch::equal(net->first->weight, weight)) << name;
    EXPECT_EQ(net->first->weight.data_ptr(), net->named_parameters()["head"].data_ptr());
  }
  Tied net;
  levin::State state = levin::module_state(*net);
  state.erase("head");
  EXPECT_EQ(said_by(*net, state),
            "module.state.missing: the module has parameters that the weights lack: head");
}

TEST(Parameters, WithTiedNamesEachNameSharesTheMemory) {
  Tied net;
  const auto tied = levin::tied_names(*net);
  EXPECT_THAT(tied, ::testing::ElementsAre(::testing::Pair("first.weight", "head")));
  const levin::State all = levin::with_tied_names(levin::module_state(*net), tied);
  EXPECT_EQ(all.values().size(), 8U);
  EXPECT_EQ(all.tensor("first.weight").data_ptr(), net->first->weight.data_ptr());
  levin::State second;
  second.set("first.weight", torch::ones({3, 3}));
  const levin::State both = levin::with_tied_names(second, tied);
  EXPECT_TRUE(both.tensor("first.weight").is_same(both.tensor("head")));
  EXPECT_EQ(both.values().size(), 2U);
}

TEST(Parameters, MissingNamesAreAllowedByPattern) {
  Tied net;
  const at::Tensor bias = net->norm->bias.detach().clone();
  levin::State state = levin::module_state(*Tied());
  state.erase("norm.bias");
  state.erase("first.bias");
  const std::string said = said_by(*net, state, {.allow_missing = {"norm.*"}});
  EXPECT_EQ(said,
            "module.state.missing: the module has parameters that the weights lack: first.bias");
  EXPECT_EQ(said_by(*net, state, {.allow_missing = {"norm.*", "first.bia?"}}),
            "levin info: weights: the module keeps its own values for names that the weights lack: "
            "first.bias, norm.bias\n");
  EXPECT_TRUE(torch::equal(net->norm->bias, bias));
  EXPECT_TRUE(torch::equal(net->first->weight, state.tensor("head")));
  // What is allowed need not be missing.
  EXPECT_EQ(said_by(*net, levin::module_state(*Tied()), {.allow_missing = {"norm.*"}}), "");
  // A tied weight by either of its names.
  state = levin::module_state(*Tied());
  state.erase("head");
  EXPECT_EQ(said_by(*net, state, {.allow_missing = {"first.w*"}}),
            "levin info: weights: the module keeps its own values for names that the weights lack: "
            "head\n");
}

TEST(Parameters, UnexpectedNamesAreAllowedByPattern) {
  Tied net;
  levin::State state = levin::module_state(*Tied());
  state.set("ema.decay", torch::ones({1})).set("other", torch::ones({1}));
  EXPECT_EQ(said_by(*net, state, {.allow_unexpected = {"ema.*"}}),
            "module.state.unexpected: the weights have names that the module lacks: other");
  EXPECT_EQ(said_by(*net, state, {.allow_unexpected = {"ema.*", "other"}}),
            "levin info: weights: names that the module lacks are ignored: ema.decay, other\n");
  EXPECT_TRUE(torch::equal(net->first->weight, state.tensor("head")));
}

// The module is the program's own; which names a file has beyond it is not.
TEST(Parameters, APatternOfNoNameIsAnErrorWhereItIsTheModulesAndAWarningWhereItIsTheFiles) {
  Tied net;
  const levin::State state = levin::module_state(*Tied());
  EXPECT_EQ(said_by(*net, state, {.allow_missing = {"norm.*", "hed*"}}),
            "module.state.pattern: allow_missing has 'hed*', which matches no name of the module; "
            "the module has first.bias, first.weight, head, norm.bias, norm.num_batches_tracked, "
            "norm.running_mean, norm.running_var, norm.weight");
  EXPECT_EQ(
      said_by(*net, state, {.allow_unexpected = {"ema.*"}}),
      "levin warn: weights: allow_unexpected has 'ema.*', which matches no name of the weights\n");
}

TEST(Parameters, WithoutStrictWhatIsPassedOverIsSaid) {
  Tied net;
  levin::State state = levin::module_state(*Tied());
  state.erase("norm.bias");
  state.set("other", torch::ones({1}));
  EXPECT_EQ(said_by(*net, state, {.strict = false}),
            "levin warn: weights: the module keeps its own values for names that the weights lack: "
            "norm.bias\n"
            "levin warn: weights: names that the module lacks are ignored: other\n");
  EXPECT_TRUE(torch::equal(net->first->weight, state.tensor("head")));
}

TEST(Parameters, AModuleWithoutMemoryTakesNoValuesInSilence) {
  torch::nn::Module net("net");
  net.register_parameter("weight", torch::empty({2, 3}, at::kMeta));
  levin::State state;
  state.set("weight", torch::ones({2, 3}));
  EXPECT_EQ(
      said_by(net, state),
      "module.state.meta: the module has tensors on the meta device, which cannot hold values: "
      "weight; call levin::materialize(module, {.values = levin::InitValues::kNone}) first");
}

TEST(Parameters, ThatAreDividedAreSlicesOfTheWhole) {
  const auto said = levin::test::run_world(3, [](int64_t rank, const auto&) -> std::string {
    torch::manual_seed(5);
    Tied net;
    const levin::State whole = levin::module_state(*net);
    levin::State wholes;
    for (const auto& [name, value] : whole.values()) {
      wholes.set(name, whole.tensor(name).clone());
    }
    const DeviceMesh mesh(levin::test::connect(), {{"dp", 3}});
    const auto parameters = levin::named_parameters(*net);
    const auto rows = levin::test::divide(parameters, mesh);
    const levin::State own = levin::module_state(*net);
    for (const auto& [name, parameter] : parameters) {
      const levin::TensorSlice& slice = own.slice(name);
      if (slice.sizes != wholes.tensor(name).sizes()) return "sizes of " + name;
      if (!torch::equal(levin::test::own_of(parameter, wholes.tensor(name)), slice.local)) {
        return "values of " + name;
      }
    }
    if (!torch::equal(own.tensor("norm.running_var"), torch::ones({3}))) return "a buffer";
    // Into it go wholes, and slices that may have more.
    levin::State others;
    for (const auto& [name, value] : whole.values()) {
      const at::Tensor other = wholes.tensor(name) + 1;
      others.set(name, other);
      if (name == "first.bias") {
        others.set(name, levin::TensorSlice{other, {3}, {0}});
      }
    }
    levin::load_module_state(*net, others);
    for (const auto& [name, parameter] : parameters) {
      if (!torch::equal(levin::test::own_of(parameter, wholes.tensor(name)) + 1, parameter)) {
        return "loaded values of " + name;
      }
    }
    // Slices of another dtype are cast, and rank 0 says so.
    levin::State doubles;
    for (const auto& [name, value] : whole.values()) {
      const at::Tensor other = wholes.tensor(name).to(torch::kDouble) + 1;
      doubles.set(name, levin::TensorSlice{other, other.sizes().vec(),
                                           std::vector<int64_t>(other.dim(), 0)});
    }
    std::string heard;
    const auto before =
        levin::log::set_sink([&](levin::log::Level, std::string_view line) { heard.append(line); });
    levin::load_module_state(*net, doubles);
    levin::log::set_sink(before);
    const bool is_told =
        says(heard, "6 tensors are cast from Double to the module's Float (first.bias, ");
    if (is_told != (rank == 0)) return "said: " + heard;
    others.set("first.weight", torch::zeros({2, 3}));
    const std::string wrong = error_of(*net, others);
    return says(wrong, "first.weight (got [2, 3], wanted [3, 3])") ? "" : wrong;
  });
  EXPECT_THAT(said, ::testing::Each(""));
}

TEST(Parameters, ASliceWithoutARanksRowsIsNamed) {
  const auto said = levin::test::run_world(2, [](int64_t rank, const auto&) -> std::string {
    const DeviceMesh mesh(levin::test::connect(), {{"dp", 2}});
    torch::nn::Linear net(torch::nn::LinearOptions(2, 4).bias(false));
    const at::Tensor before = net->weight.detach().clone();
    const auto rows = levin::test::divide(net->weight, mesh, {levin::shard::Shard{0, {1, 3}}});
    levin::State first;
    first.set("weight", levin::TensorSlice{before.narrow(0, 0, 2), {4, 2}, {0, 0}});
    const std::string wrong = error_of(*net, first);
    if (rank == 0) return wrong == "no error" ? "" : wrong;
    return says(wrong, "weight (got [0:2, 0:2] of [4, 2], wanted at least [1:4, 0:2])") ? ""
                                                                                        : wrong;
  });
  EXPECT_THAT(said, ::testing::Each(""));
}

// Rows alone are no weights of a module that has all of them.
TEST(Parameters, ThatAreWholeTakeNoRows) {
  torch::nn::Linear net(torch::nn::LinearOptions(2, 4).bias(false));
  levin::State rows;
  rows.set("weight", levin::TensorSlice{torch::zeros({4, 2}), {8, 2}, {0, 0}});
  EXPECT_EQ(error_of(*net, rows),
            "module.state.shape: weights have other shapes than the module's parameters: weight "
            "(got [8, 2], "
            "wanted [4, 2])");
}

}  // namespace
