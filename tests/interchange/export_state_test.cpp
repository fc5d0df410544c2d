// What a module keeps, writes and shares beside the values of its operators, in programs of torch.export.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/autocast.h"
#include "levin/interchange/export_program.h"
#include "levin/interchange/load_exported.h"
#include "levin/module/activation_checkpoint.h"
#include "levin/module/parameters.h"
#include "tests/interchange/own_backward.h"
#include "tests/support/divided.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace levin::test::export_state {
namespace {

using at::Tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace nn = torch::nn;

/// A network of one function, which gets the network.
struct Network : nn::Module {
  using Function = std::function<Tensor(Network&, const Tensor&)>;
  explicit Network(Function function) : function(std::move(function)) {}
  Tensor forward(const Tensor& x) { return function(*this, x); }
  Function function;
  Tensor buffer = register_buffer("buffer", torch::zeros({6}));
  Tensor weight = register_parameter("weight", torch::arange(6.0));
  Tensor kept;
};

class ExportState : public ::testing::Test {
 protected:
  static std::shared_ptr<Network> network(Network::Function function) {
    return std::make_shared<Network>(std::move(function));
  }
  std::string refusal(const Network::Function& function, bool trains = false,
                      const std::vector<DynamicDim>& dims = {}) {
    return error_of([&] {
      auto net = network(function);
      net->train(trains);
      export_program(net, {{"x", torch::randn({4, 6})}}, file_, {.dynamic = dims});
    });
  }
  /// What comes back gives what a new network gives in its first call, and leaves it in the same buffer.
  void expect_same(const Network::Function& function, const std::vector<DynamicDim>& dims = {},
                   std::vector<int64_t> rows = {4}) {
    auto net = network(function);
    net->eval();
    export_program(net, {{"x", torch::randn({4, 6})}}, file_, {.dynamic = dims});
    EXPECT_TRUE(at::equal(net->weight, torch::arange(6.0))) << "it is as it was";
    EXPECT_TRUE(at::equal(net->buffer, torch::zeros({6}))) << "it is as it was";
    for (const int64_t count : rows) {
      const Tensor x = torch::randn({count, 6});
      const auto back = load_exported(file_, {.same_in_evaluation = true});
      back->eval();
      auto once = network(function);
      once->eval();
      EXPECT_TRUE(at::allclose(back->forward(x), once->forward(x), 1e-6, 1e-6)) << count;
      EXPECT_TRUE(at::equal(back->named_buffers()["buffer"], once->buffer)) << count;
      EXPECT_TRUE(at::equal(back->named_parameters()["weight"], once->weight)) << count;
    }
  }

  Scratch scratch_;
  std::filesystem::path file_ = scratch_ / "net.pt2";
};

TEST_F(ExportState, TakesWhatTheFirstCallMakesAndLaterOnesKeep) {
  const auto masked = [](Network& net, const Tensor& x) {
    const int64_t rows = x.size(0);
    if (!net.kept.defined() || net.kept.size(0) < rows) net.kept = torch::ones({rows, rows}).tril();
    return net.kept.narrow(0, 0, rows).narrow(1, 0, rows).matmul(x);
  };
  expect_same(masked);
  expect_same(masked, {{"x", 0}}, {4, 7, 2, 1});
  struct Lazy : nn::Module {
    Tensor forward(const Tensor& x) {
      if (!weight.defined()) weight = register_parameter("weight", torch::ones({x.size(1)}) * 2);
      return x * weight;
    }
    Tensor weight;
  };
  export_program(std::make_shared<Lazy>(), {{"x", torch::randn({4, 6})}}, file_,
                 {.dynamic = {{"x", 0}}});
  EXPECT_TRUE(load_exported(file_)->named_parameters().contains("weight"));
}

TEST_F(ExportState, RefusesWhatChangesFromCallToCall) {
  for (const bool is_dynamic : {false, true}) {
    const std::vector<DynamicDim> dims =
        is_dynamic ? std::vector<DynamicDim>{{"x", 0}} : std::vector<DynamicDim>{};
    const auto replaces = [](Network& net, const Tensor& x) {
      net.buffer = net.buffer + 1;
      return x + net.buffer;
    };
    EXPECT_THAT(
        refusal(replaces, false, dims),
        AllOf(StartsWith("interchange.export.values: in a second call with the same inputs"),
              HasSubstr("register_buffer")));
  }
  EXPECT_THAT(refusal([](Network& net, const Tensor& x) {
                if (!net.kept.defined()) net.kept = torch::zeros({2, 6});
                Tensor row = net.kept[0];
                return x * row.add_(1);
              }),
              AllOf(StartsWith("interchange.export.operator: "), HasSubstr("register_buffer")));
}

TEST_F(ExportState, RefusesMemoryThatNoOperatorGave) {
  const auto refused = AllOf(StartsWith("interchange.export.operator: "), HasSubstr("set_data"));
  EXPECT_THAT(refusal([](Network& net, const Tensor& x) {
                net.buffer.set_data(net.buffer + 1);
                return x + net.buffer;
              }),
              refused);
  EXPECT_THAT(refusal([](Network& net, const Tensor& x) {
                Tensor y = x + net.weight;
                net.buffer.set_data(net.buffer + 1);  // after its last use
                return y;
              }),
              refused);
  EXPECT_THAT(refusal([](Network&, const Tensor& x) {
                Tensor y = torch::zeros({1});
                y.set_data(x * 3);
                return y + 1;
              }),
              refused);
}

TEST_F(ExportState, RefusesWhatTheHostWritesIntoTheModuleAtTheEnd) {
  EXPECT_THAT(refusal([](Network& net, const Tensor& x) {
                Tensor y = x + net.buffer;
                net.buffer.data_ptr<float>()[0] += 1;
                return y;
              }),
              StartsWith("interchange.export.host_write: "));
}

TEST_F(ExportState, KeepsWhatTheHostFilledUnderWhatOperatorsWrite) {
  expect_same([](Network&, const Tensor& x) {
    Tensor table = torch::empty({6});
    for (int i = 0; i < 6; ++i) table.data_ptr<float>()[i] = static_cast<float>(i);
    table[2] = 9;  // one element: the others are the host's
    return x * table;
  });
  expect_same([](Network&, const Tensor& x) {
    Tensor table = torch::zeros({2, 6});
    Tensor row = table[1];
    table.data_ptr<float>()[8] = 3;
    table.add_(1);
    row.mul_(2);
    return x * table.sum(0) + row;
  });
  expect_same([](Network&, const Tensor& x) {
    Tensor table = torch::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
    table.mul_(2);
    table[0].copy_(x.sum());
    return x * table;
  });
}

TEST_F(ExportState, WritesParametersWithoutGradients) {
  expect_same([](Network& net, const Tensor& x) {
    {
      const torch::NoGradGuard none;
      net.weight.clamp_(1, 4);
      net.weight.narrow(0, 1, 2).mul_(x.sum());
    }
    return x * net.weight;
  });
}

TEST_F(ExportState, CallsOneBatchNormTwice) {
  auto norm = nn::BatchNorm1d(6);
  auto net = network([norm](Network&, const Tensor& x) mutable { return norm(norm(x).relu()); });
  net->register_module("norm", norm.ptr());
  export_program(net, {{"x", torch::randn({4, 6})}}, file_, {.dynamic = {{"x", 0}}});
  const Tensor x = torch::randn({7, 6});
  const auto back = load_exported(file_);
  EXPECT_TRUE(at::allclose(back->forward(x), net->forward(x)));
  EXPECT_TRUE(at::equal(back->named_buffers()["norm.running_var"], norm->running_var));
}

TEST_F(ExportState, ComputesRealsOfSizesInRegions) {
  expect_same(
      [](Network& net, const Tensor& x) {
        const AutocastScope scope(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
        Tensor y;
        {
          const torch::NoGradGuard none;
          y = x * (2.0 / static_cast<double>(x.size(0)));
        }
        return (y * net.weight / static_cast<double>(x.size(0))).to(at::kFloat);
      },
      {{"x", 0}}, {4, 9, 1});
}

TEST_F(ExportState, RefusesGradientsThatNoOperatorHas) {
  // The inputs alone have gradients.
  EXPECT_THAT(refusal([](Network&, const Tensor& x) { return users::Fivefold::apply(x); }, true),
              AllOf(StartsWith("interchange.export.function: "), HasSubstr("Fivefold")));
  EXPECT_THAT(
      refusal([](Network&, const Tensor& x) { return users::Fivefold::apply(x).narrow(0, 0, 1); },
              true),
      StartsWith("interchange.export.function: "));
  const auto checkpointed = [](Network& net, const Tensor& x) {
    return activation_checkpoint([&](const Tensor& y) { return (y * net.weight).sin(); }, x);
  };
  EXPECT_THAT(refusal(checkpointed, true),
              AllOf(StartsWith("interchange.export.function: "), HasSubstr("checkpoint")));
  expect_same(checkpointed);
  auto net = network([](Network& net, const Tensor& x) { return x * net.kept; });
  net->kept = net->weight * 2;
  EXPECT_THAT(
      error_of([&] { export_program(net, {{"x", torch::randn({4, 6})}}, file_); }),
      AllOf(StartsWith("interchange.export.operator: "), HasSubstr("compute it in forward")));
}

TEST_F(ExportState, TakesTheSmallestSizeThatRunsAlike) {
  const auto padded = [](Network&, const Tensor& x) {
    const int64_t missing = std::max<int64_t>(0, 3 - x.size(0));
    return torch::constant_pad_nd(x, {0, 0, 0, missing}) * 2;
  };
  auto net = network(padded);
  export_program(net, {{"x", torch::randn({10, 6})}}, file_, {.dynamic = {{"x", 0}}});
  EXPECT_THAT(error_of([&] { load_exported(file_)->forward(torch::randn({2, 6})); }),
              StartsWith("interchange.input: "));
  EXPECT_EQ(load_exported(file_)->forward(torch::randn({3, 6})).size(0), 3);
  // A branch at the largest size is seen.
  EXPECT_THAT(refusal([](Network&, const Tensor& x) { return x.size(0) > 18 ? x.relu() : x * 2; },
                      false, {{.input = "x", .dim = 0, .max = 20}}),
              StartsWith("interchange.export.size: with dim 0 of 'x' = 20 the module runs"));
}

TEST_F(ExportState, NamesConstantsAndArgumentsBesideTheModulesOwn) {
  auto net = network([](Network& net, const Tensor& x) {
    return x * net.named_parameters()["constant_0"] +
           torch::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
  });
  net->register_parameter("constant_0", torch::ones({6}));
  export_program(net, {{"x", torch::ones({4, 6})}}, file_);
  EXPECT_TRUE(at::equal(load_exported(file_)->forward(torch::ones({4, 6})),
                        net->forward(torch::ones({4, 6}))));
  const auto named = [&](const std::string& buffer, const std::string& input) {
    auto net = network([](Network&, const Tensor& x) { return x + 1; });
    net->register_buffer(buffer, torch::ones({1}));
    return error_of([&] { export_program(net, {{input, torch::ones({4, 6})}}, file_); });
  };
  EXPECT_THAT(named("class", "x"),
              StartsWith("interchange.export.input: got the parameter or buffer name 'class'"));
  EXPECT_THAT(named("training", "x"),
              StartsWith("interchange.export.input: got the parameter or buffer name 'training'"));
  EXPECT_THAT(named("mask", "class"),
              StartsWith("interchange.export.input: got the input name 'class'"));
  EXPECT_THAT(named("mask", "torch"),
              StartsWith("interchange.export.input: got the input name 'torch'"));
  EXPECT_EQ(named("a b", "x"), "no error");
}

TEST_F(ExportState, RefusesModulesWithoutTheirValues) {
  auto net = network([](Network&, const Tensor& x) { return x + 1; });
  net->register_buffer("far", torch::ones({1}, at::kMeta));
  EXPECT_THAT(error_of([&] { export_program(net, {{"x", torch::randn({4, 6})}}, file_); }),
              AllOf(StartsWith("interchange.export.input: "), HasSubstr("meta")));
}

TEST_F(ExportState, RefusesDividedParameters) {
  const auto said = run_world(2, [&](int64_t rank, const std::filesystem::path& folder) {
    const comm::DeviceMesh mesh(connect(), {{"dp", 2}});
    auto net = nn::Linear(6, 4);
    const auto divided = divide(named_parameters(*net), mesh);
    const std::string error = error_of(
        [&] { export_program(net, {{"x", torch::randn({4, 6})}}, folder / std::to_string(rank)); });
    return error.starts_with("interchange.export.divided: '") ? std::string() : error;
  });
  EXPECT_THAT(said, ::testing::Each(""));
}

}  // namespace
}  // namespace levin::test::export_state
