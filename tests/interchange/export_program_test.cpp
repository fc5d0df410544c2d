// Networks as programs of torch.export: what is written, what comes back, and what is refused.
#include "levin/interchange/export_program.h"

#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "levin/base/autocast.h"
#include "levin/base/log_sink.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/interchange/load_exported.h"
#include "tests/interchange/own_backward.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/small_disk.h"

namespace levin::test::export_program_test {
namespace {

using at::Tensor;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace nn = torch::nn;

/// A network of one function.
struct Network : nn::Module {
  using Function = std::function<Tensor(const Tensor&)>;
  explicit Network(Function function) : function(std::move(function)) {}
  Tensor forward(const Tensor& x) { return function(x); }
  Function function;
};

std::shared_ptr<Network> network(Network::Function function) {
  return std::make_shared<Network>(std::move(function));
}

json program_of(const std::filesystem::path& file) {
  caffe2::serialize::PyTorchStreamReader archive(file.string());
  const auto [text, size] = archive.getRecord("models/model.json");
  return json::parse(std::string_view(static_cast<const char*>(text.get()), size));
}

class ExportProgram : public ::testing::Test {
 protected:
  /// The JSON of the program.
  template <class Pointer>
  json written(Pointer net, const Batch& example, const std::vector<DynamicDim>& dims = {}) {
    export_program(std::move(net), example, file_, {.dynamic = dims});
    return program_of(file_);
  }
  template <class Pointer>
  std::vector<std::string> targets(Pointer net, const Batch& example,
                                   const std::vector<DynamicDim>& dims = {}) {
    std::vector<std::string> names;
    const json program = written(std::move(net), example, dims);
    for (const json& node : program["graph_module"]["graph"]["nodes"]) {
      names.push_back(node["target"].get<std::string>());
    }
    return names;
  }
  std::string refusal(const Network::Function& function, const std::vector<DynamicDim>& dims = {},
                      const Tensor& x = torch::randn({4, 6})) {
    return error_of([&] {
      auto net = network(function);
      net->eval();
      export_program(net, {{"x", x}}, file_, {.dynamic = dims});
    });
  }
  /// What comes back gives what the function gives, at another size too.
  void expect_same(const Network::Function& function, const std::vector<DynamicDim>& dims,
                   const std::vector<Tensor>& inputs) {
    auto net = network(function);
    net->eval();
    export_program(net, {{"x", inputs.front()}}, file_, {.dynamic = dims});
    const auto back = load_exported(file_);
    back->eval();
    for (const Tensor& x : inputs) {
      EXPECT_TRUE(at::equal(back->forward(x), function(x))) << x.sizes();
    }
  }

  Scratch scratch_;
  std::filesystem::path file_ = scratch_ / "net.pt2";
};

TEST_F(ExportProgram, HasTheOperatorsAsTheCodeCallsThem) {
  auto net = nn::Sequential(nn::Conv2d(3, 4, 3), nn::BatchNorm2d(4), nn::Dropout(0.2));
  EXPECT_THAT(targets(net, {{"image", torch::randn({2, 3, 5, 5})}}),
              ElementsAre("torch.ops.aten.conv2d.default", "torch.ops.aten.add_.Tensor",
                          "torch.ops.aten.batch_norm.default", "torch.ops.aten.dropout.default"));
}

TEST_F(ExportProgram, NamesModulesParametersAndInputs) {
  auto head = nn::Linear(4, 2);
  auto block = network([head](const Tensor& x) mutable { return head(torch::relu(x)); });
  block->register_module("1", head.ptr());
  auto net = nn::Sequential(nn::Linear(6, 4), block);
  net->eval();
  const json program = written(net, {{"features", torch::randn({3, 6})}}, {{"features", 0}});
  std::vector<std::string> parameters;
  for (const json& spec : program["graph_module"]["signature"]["input_specs"]) {
    if (spec.contains("parameter")) parameters.push_back(spec["parameter"]["parameter_name"]);
  }
  EXPECT_THAT(parameters, ElementsAre("0.weight", "0.bias", "1.1.weight", "1.1.bias"));
  const json& nodes = program["graph_module"]["graph"]["nodes"];
  const std::string last = nodes.back()["metadata"]["nn_module_stack"];
  EXPECT_THAT(last, HasSubstr(";L__self___1,1,levin.test.export_program_test.Network"
                              ";L__self___1_1,1.1,torch.nn.modules.linear.Linear"));
  EXPECT_EQ(program["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"],
            json{"features"});
  const auto back = load_exported(file_);
  EXPECT_EQ(back->named_children()["1"]->named_children()["1"]->name(), "Linear");
}

TEST_F(ExportProgram, LeavesTheModuleAndTheGeneratorsAsTheyWere) {
  auto net = nn::Sequential(nn::BatchNorm1d(6), nn::Dropout(0.5));
  torch::manual_seed(4);
  const Tensor expected = torch::rand({3});
  torch::manual_seed(4);
  Tensor x = torch::ones({4, 6});
  torch::manual_seed(4);
  export_program(net, {{"x", x}}, file_, {.dynamic = {{"x", 0}}});
  EXPECT_TRUE(at::equal(torch::rand({3}), expected));
  EXPECT_TRUE(at::equal(net[0]->named_buffers()["running_mean"], torch::zeros({6})));
  EXPECT_EQ(net[0]->named_buffers()["num_batches_tracked"].item<int64_t>(), 0);
  EXPECT_TRUE(net->is_training());
  auto writes = network([](const Tensor& x) { return x.add_(1); });
  export_program(writes, {{"x", x}}, file_);
  EXPECT_TRUE(at::equal(x, torch::ones({4, 6})));
}

TEST_F(ExportProgram, MakesFormulasOfSizes) {
  const std::vector<Tensor> inputs = {torch::randn({4, 6}), torch::randn({7, 6}),
                                      torch::randn({1, 6}), torch::randn({33, 6})};
  expect_same([](const Tensor& x) { return x.reshape({x.size(0) * 3, 2}); }, {{"x", 0}}, inputs);
  expect_same([](const Tensor& x) { return x.sum(0) * (2.5 / x.size(0)); }, {{"x", 0}}, inputs);
  expect_same([](const Tensor& x) { return x + torch::arange(x.size(0)).unsqueeze(1); }, {{"x", 0}},
              inputs);
  expect_same([](const Tensor& x) { return x.narrow(0, (x.size(0) - 1) / 2, 1); }, {{"x", 0}},
              inputs);
}

TEST_F(ExportProgram, GivesADimOfOneItsPlaceInTheRange) {
  const auto least = [&](const Network::Function& function) {
    const json program = written(network(function), {{"x", torch::randn({4, 6})}}, {{"x", 0}});
    return program["range_constraints"]["s0"]["min_val"].get<int64_t>();
  };
  EXPECT_EQ(least([](const Tensor& x) { return x * 2; }), 1);
  EXPECT_EQ(least([](const Tensor& x) { return x.size(0) == 1 ? x : x.flip(0); }), 2);
  EXPECT_EQ(least([](const Tensor& x) { return x.squeeze(0); }), 2);
}

TEST_F(ExportProgram, JoinsDimsOfOneNameAndOfOneSizeAndPlace) {
  auto net = nn::Bilinear(6, 3, 2);
  const Batch example = {{"left", torch::randn({4, 6})}, {"right", torch::randn({4, 3})}};
  EXPECT_EQ(written(net, example, {{"left", 0}, {"right", 0}})["range_constraints"].size(), 1U);
  EXPECT_EQ(
      written(net, example, {{"left", 0, "batch"}, {"right", 0, "batch"}})["range_constraints"]
          .size(),
      1U);
  EXPECT_THAT(
      error_of([&] { written(net, example, {{"left", 0, "a"}, {"right", 0, "b"}}); }),
      AllOf(StartsWith("interchange.export.size: the module does not run with the dim 'a' = 5"),
            HasSubstr("limit the sizes with min, max or multiple_of")));
}

TEST_F(ExportProgram, KeepsRegionsWithoutGradientsAndUnderAutocast) {
  auto linear = nn::Linear(6, 6);
  auto net = network([linear](const Tensor& x) mutable {
    Tensor scale;
    {
      const torch::NoGradGuard none;
      scale = x.abs().amax(-1, true);
    }
    const AutocastScope scope(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
    return linear(x / scale);
  });
  net->register_module("linear", linear.ptr());
  EXPECT_THAT(targets(net, {{"x", torch::randn({4, 6})}}),
              ElementsAre("torch.ops.higher_order.wrap_with_set_grad_enabled",
                          "torch.ops.higher_order.wrap_with_autocast"));
  const auto back = load_exported(file_);
  const Tensor x = torch::randn({4, 6});
  const Tensor y = back->forward(x);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(y, net->forward(x)));
}

TEST_F(ExportProgram, HasWhatTheHostFilledAsConstants) {
  const auto function = [](const Tensor& x) {
    Tensor table = torch::empty({2, 3});
    for (int64_t i = 0; i < 6; ++i) table.data_ptr<float>()[i] = static_cast<float>(i);
    const Tensor before = table.clone();
    table.data_ptr<float>()[0] = 9;
    Tensor changed = torch::zeros({6});
    changed.data_ptr<float>()[1] = 4;
    changed.mul_(2);
    return x * torch::cat({table[0], before[1]}) + torch::tensor(0.25) + changed;
  };
  expect_same(function, {{"x", 0}}, {torch::randn({4, 6}), torch::randn({9, 6})});
}

TEST_F(ExportProgram, InlinesFunctionsWithABackwardOfTheirOwnInEvaluationAlone) {
  auto linear = nn::Linear(6, 6);
  auto net =
      network([linear](const Tensor& x) mutable { return users::Fivefold::apply(linear(x)) + 1; });
  net->register_module("linear", linear.ptr());
  const Batch example = {{"x", torch::randn({4, 6})}};
  EXPECT_THAT(error_of([&] { written(net, example); }),
              AllOf(StartsWith("interchange.export.function: "), HasSubstr("Fivefold"),
                    HasSubstr("has a custom backward")));
  net->eval();
  EXPECT_THAT(targets(net, example),
              ElementsAre("torch.ops.aten.t.default", "torch.ops.aten.addmm.default",
                          "torch.ops.aten.mul.Tensor", "torch.ops.aten.add.Tensor"));
}

TEST_F(ExportProgram, RefusesWhatDependsOnValues) {
  EXPECT_THAT(refusal([](const Tensor& x) { return x.sum().item<float>() > 0 ? x : -x; }),
              AllOf(StartsWith("interchange.export.read: "), HasSubstr("item")));
  EXPECT_THAT(refusal([](const Tensor& x) { return torch::equal(x, x * 2) ? x : -x; }),
              StartsWith("interchange.export.read: "));
  // The host reads without an operator: what it read differs for other values.
  EXPECT_THAT(refusal([](const Tensor& x) { return x * x.data_ptr<float>()[0]; }),
              AllOf(StartsWith("interchange.export.values: "), HasSubstr("aten::mul")));
  EXPECT_THAT(refusal([](const Tensor& x) { return x.masked_select(x > 0.5); }),
              AllOf(StartsWith("interchange.export.values: "), HasSubstr("masked_select")));
}

TEST_F(ExportProgram, RefusesWhatTheHostWritesIntoComputedTensors) {
  EXPECT_THAT(refusal([](const Tensor& x) {
                const Tensor y = x * 2;
                y.data_ptr<float>()[0] = 7;
                return y + 1;
              }),
              AllOf(StartsWith("interchange.export.host_write: "), HasSubstr("index_put_")));
}

TEST_F(ExportProgram, RefusesWhatPythonHasNoFormFor) {
  EXPECT_THAT(refusal([](const Tensor& x) {
                return x * torch::rand(x.sizes(), at::make_generator<at::CPUGeneratorImpl>(3));
              }),
              AllOf(StartsWith("interchange.export.operator: "), HasSubstr("aten::rand")));
  auto counter = torch::zeros({1});
  EXPECT_THAT(refusal([counter](const Tensor& x) mutable { return x + counter.add_(1); }),
              AllOf(StartsWith("interchange.export.operator: "), HasSubstr("register_buffer")));
  EXPECT_THAT(refusal([](const Tensor& x) { return x.to_sparse().to_dense(); }),
              StartsWith("interchange.export.operator: "));
  EXPECT_THAT(error_of([&] {
                export_program(
                    nn::Linear(6, 2), [](const Batch&) { return c10::IValue(std::string("text")); },
                    {{"x", torch::randn({4, 6})}}, file_);
              }),
              StartsWith("interchange.export.output: forward returns a String"));
}

TEST_F(ExportProgram, RefusesSizesThatRunOtherOperators) {
  EXPECT_THAT(refusal([](const Tensor& x) { return x.size(0) > 5 ? x.relu() : x; }, {{"x", 0}}),
              AllOf(StartsWith("interchange.export.size: with dim 0 of 'x' = 8 the module runs"),
                    HasSubstr("limit it with min and max")));
  EXPECT_THAT(
      refusal(
          [](const Tensor& x) { return x.narrow(0, 0, std::max<int64_t>(3, x.size(0) % 7)) + 0; },
          {{"x", 0}}),
      AllOf(StartsWith("interchange.export.size: size 0 of the result of aten::narrow"),
            HasSubstr("does not follow one formula of (dim 0 of 'x'): 4 at (4), 5 at (5)")));
  EXPECT_THAT(refusal([](const Tensor& x) { return x * std::sqrt(x.size(0)); }, {{"x", 0}}),
              AllOf(StartsWith("interchange.export.size: the argument other of aten::mul"),
                    HasSubstr("wanted a number times a size or divided by a size")));
  EXPECT_THAT(refusal(
                  [](const Tensor& x) {
                    Tensor mask = torch::zeros({x.size(0), 1});
                    mask.data_ptr<float>()[0] = 1;
                    return x * mask;
                  },
                  {{"x", 0}}),
              AllOf(StartsWith("interchange.export.size: with dim 0 of 'x' = 5 the module runs"),
                    HasSubstr("another constant tensor")));
  EXPECT_THAT(refusal([](const Tensor& x) { return x.view({-1, 4}); }, {{"x", 0}}),
              AllOf(StartsWith("interchange.export.size: the module does not run with"),
                    HasSubstr("multiple_of")));
  expect_same([](const Tensor& x) { return x.view({-1, 4}); },
              {{.input = "x", .dim = 0, .multiple_of = 2}},
              {torch::randn({4, 6}), torch::randn({10, 6})});
}

TEST_F(ExportProgram, HoldsToMinMaxAndMultiples) {
  auto table = nn::Embedding(9, 3);
  auto net =
      network([table](const Tensor& x) mutable { return table(torch::arange(x.size(0))) * x; });
  net->register_module("table", table.ptr());
  net->eval();
  const Batch example = {{"x", torch::randn({8, 3})}};
  EXPECT_THAT(
      error_of([&] { written(net, example, {{"x", 0}}); }),
      AllOf(StartsWith("interchange.export.size: the module does not run with dim 0 of 'x' = 16"),
            HasSubstr("index out of range")));
  const json program = written(net, example, {{.input = "x", .dim = 0, .min = 3, .max = 9}});
  EXPECT_EQ(program["range_constraints"]["s0"], (json{{"min_val", 3}, {"max_val", 9}}));
  const auto back = load_exported(file_);
  EXPECT_THAT(error_of([&] { back->forward(torch::randn({10, 3})); }),
              StartsWith("interchange.input: "));
  EXPECT_TRUE(at::equal(back->forward(torch::ones({9, 3})), net->forward(torch::ones({9, 3}))));
}

TEST_F(ExportProgram, SaysWhatIsWrongWithTheExample) {
  const auto error = [&](const Batch& example, const std::vector<DynamicDim>& dims) {
    return error_of([&] { written(nn::Linear(6, 2), example, dims); });
  };
  const Tensor x = torch::randn({4, 6});
  EXPECT_THAT(
      error({{"x", x}}, {{"y", 0}}),
      StartsWith("interchange.export.input: dynamic names the input 'y', but the example has: x"));
  EXPECT_THAT(error({{"x", x}}, {{"x", 2}}), HasSubstr("dim 2 of 'x', but it has 2 dims"));
  EXPECT_THAT(error({{"x", x}}, {{"x", 0}, {"x", 0}}), HasSubstr("dim 0 of 'x' twice"));
  EXPECT_THAT(error({{"x", x}}, {{.input = "x", .max = 3}}),
              HasSubstr("wanted a size that fits its min, max"));
  EXPECT_THAT(error({{"x", x}}, {{.input = "x", .multiple_of = 3}}), HasSubstr("multiple_of"));
  EXPECT_THAT(error({{"x", x}}, {{.input = "x", .min = 4, .max = 4}}),
              HasSubstr("one size between"));
  EXPECT_THAT(error({}, {}), HasSubstr("the example has no tensors"));
  EXPECT_THAT(error({{"2 x", x}}, {}), HasSubstr("wanted a Python identifier"));
  EXPECT_THAT(error({{"x", Tensor()}}, {}), HasSubstr("the input 'x' is an undefined tensor"));
  EXPECT_THAT(error_of([&] {
                export_program(network([](const Tensor& x) { return x; }), {{"x", x}, {"y", x}},
                               file_);
              }),
              StartsWith("interchange.export.input: forward does not take 2 tensors"));
}

TEST_F(ExportProgram, TakesPredictStepOfAModuleWithoutForward) {
  struct Predicts : levin::Module {
    nn::Linear net = register_module("net", nn::Linear(6, 2));
    Tensor predict_step(const Batch& batch, int64_t) override { return net->forward(batch["x"]); }
  };
  auto net = std::make_shared<Predicts>();
  net->eval();
  const Tensor x = torch::randn({4, 6});
  export_program(net, {{"x", x}}, file_);
  EXPECT_TRUE(at::equal(load_exported(file_)->forward(x), net->net->forward(x)));
}

TEST_F(ExportProgram, WarnsWhereItCannotTryOtherValues) {
  std::string said;
  const auto before =
      log::set_sink([&](log::Level, std::string_view text) { said += std::string(text); });
  auto net = network([](const Tensor& lengths) {
    const auto packed =
        nn::utils::rnn::pack_padded_sequence(torch::ones({5, 2, 3}), lengths.to(at::kCPU));
    return packed.data() + 0;
  });
  EXPECT_EQ(error_of([&] { written(net, {{"lengths", torch::tensor({5, 2})}}); }), "no error");
  log::set_sink(before);
  EXPECT_THAT(said,
              HasSubstr("could not check that the program is the same for other input values"));
}

TEST_F(ExportProgram, KeepsTheLastFileWhereTheDiskIsFull) {
  const int code = run_child([&] {
    torch::set_num_threads(1);  // a fork has no other threads
    if (!mount_small_disk(scratch_.path().string(), 256 << 10)) return kSkipped;
    auto small = nn::Linear(6, 2);
    export_program(small, {{"x", torch::randn({4, 6})}}, file_);
    auto large = nn::Linear(400, 400);
    const std::string message =
        error_of([&] { export_program(large, {{"x", torch::randn({4, 400})}}, file_); });
    const Tensor x = torch::randn({4, 6});
    const bool is_intact = at::equal(load_exported(file_)->forward(x), small->forward(x));
    return message.starts_with("files.write: ") && is_intact ? 0 : 1;
  });
  if (code == kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace levin::test::export_program_test
