// The measures of a run, beside Lightning, torch and psutil: rates over a window, peak
// FLOP/s by name, FLOPs of forward and backward, norms of gradients, statistics of the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include <limits>
#include <map>

#include "levin/checkpoint/checkpoint.h"
#include "levin/graph/cost/flops.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/record/trace.h"
#include "levin/optim/optim.h"
#include "levin/trainer/callbacks/measures/available_flops.h"
#include "levin/trainer/callbacks/measures/device_stats.h"
#include "levin/trainer/callbacks/measures/throughput.h"
#include "tests/oracle/python.h"

namespace measures_oracle {
namespace {

using levin::Scalars;
using levin::State;
using Json = nlohmann::json;

class Measures : public levin::test::PythonTest {
 protected:
  void SetUp() override {
    PythonTest::SetUp();
    if (IsSkipped()) return;
    std::string said;
    ASSERT_EQ(run("measures.py", "'" + file("").string() + "'", &said), 0) << said;
    wanted_ = Json::parse(levin::test::bytes_of(file("wanted.json")));
  }
  Json wanted_;
};

std::map<std::string, double> by_name(const Scalars& values) {
  std::map<std::string, double> map;
  for (const auto& [name, value] : values) map[name] = value;
  return map;
}

void expect_equal(const std::map<std::string, double>& got, const Json& wanted, double relative) {
  EXPECT_EQ(got.size(), wanted.size());
  for (const auto& [name, value] : wanted.items()) {
    ASSERT_TRUE(got.contains(name)) << name;
    const double number = value.get<double>();
    EXPECT_NEAR(got.at(name), number, relative * std::abs(number)) << name;
  }
}

TEST_F(Measures, RatesAreThoseOfThroughputOfLightning) {
  for (const int64_t world : {1, 3}) {
    for (const bool with_lengths : {false, true}) {
      for (const bool with_flops : {false, true}) {
        levin::detail::Throughput throughput(
            {.available_flops = 2.5e6, .processes = world, .window_size = 4});
        const std::string key = c10::str(world, " ", int{with_lengths}, " ", int{with_flops});
        levin::detail::ThroughputTotals totals;
        for (int64_t i = 0; i < 9; ++i) {
          totals.time_s += 0.25 + 0.125 * static_cast<double>(i % 3);
          totals.batches = i + 1;
          totals.samples += 8 + i % 2;
          if (with_lengths) totals.lengths = totals.lengths.value_or(0) + 100 + 7 * i;
          if (with_flops) totals.flops = 1000 + 10 * i;
          throughput.update(totals);
          SCOPED_TRACE(c10::str(key, ", update ", i));
          expect_equal(by_name(throughput.compute()), wanted_["rates"][key][static_cast<size_t>(i)],
                       1e-12);
        }
      }
    }
  }
}

TEST_F(Measures, PeaksOfGpusAreThoseOfLightning) {
  const std::map<std::string, at::ScalarType> dtypes = {{"torch.float64", at::kDouble},
                                                        {"torch.float32", at::kFloat},
                                                        {"torch.bfloat16", at::kBFloat16},
                                                        {"torch.float16", at::kHalf},
                                                        {"tf32", at::kFloat}};
  int64_t known = 0;
  for (const auto& [name, peaks] : wanted_["peaks"].items()) {
    for (const auto& [dtype, peak] : peaks.items()) {
      const auto got = levin::detail::available_flops(name, dtypes.at(dtype), dtype == "tf32");
      ASSERT_EQ(got.has_value(), !peak.is_null()) << name << " " << dtype;
      if (!got) continue;
      EXPECT_NEAR(*got, peak.get<double>(), 1.0) << name << " " << dtype;
      ++known;
    }
  }
  EXPECT_GT(known, 80);
}

/// The model of measures.py.
struct Net : torch::nn::Module {
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 6, 3).padding(1)};
  torch::nn::ConvTranspose2d up{torch::nn::ConvTranspose2dOptions(6, 4, 2).stride(2)};
  torch::nn::Linear narrow{256, 10};
  torch::nn::Linear head{torch::nn::LinearOptions(40, 7).bias(false)};
  Net() {
    register_module("conv", conv);
    register_module("up", up);
    register_module("narrow", narrow);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) {
    return head(narrow(up(torch::relu(conv(x))).flatten(2)).flatten(1));
  }
};

TEST_F(Measures, FlopsAreThoseOfFlopCounterMode) {
  Net net;
  const at::Tensor x = torch::zeros({5, 3, 8, 8});
  levin::graph::FlopCounter counter;
  const at::Tensor loss = net.forward(x).sum();
  EXPECT_EQ(*counter.flops(), wanted_["flops"]["forward"].get<double>());
  loss.backward();
  counter.stop();
  EXPECT_EQ(*counter.flops(), wanted_["flops"]["both"].get<double>());
  net.forward(x);
  EXPECT_EQ(*counter.flops(), wanted_["flops"]["both"].get<double>()) << "counted after stop()";
}

/// The cost model has the same formulas for the nodes of a recorded step.
TEST_F(Measures, ARecordedStepHasTheFlopsOfTheStep) {
  const auto net = std::make_shared<Net>();
  const at::Tensor x = torch::zeros({5, 3, 8, 8});
  const auto step = levin::trace(
      [&](const at::Tensor& input) {
        const at::Tensor loss = net->forward(input).sum();
        loss.backward();
        return loss;
      },
      {x}, {.state = levin::named_parameters(*net)});
  double flops = 0.0;
  for (const auto& node :
       levin::graph::cost_of(step.graph(), *levin::graph::find_device("cpu")).nodes) {
    const std::string name(node.node->op().schema().name());
    if (levin::graph::has_flop_formula(name)) flops += node.flops;
  }
  EXPECT_EQ(flops, wanted_["flops"]["both"].get<double>());
}

TEST_F(Measures, NormsOfGradientsAreThoseOfGradNorm) {
  const State gradients = levin::load_weights(file("data.safetensors"));
  std::vector<levin::NamedTensor> parameters;
  for (const char* name :
       {"a.weight", "a.bias", "b.0.weight", "b.0.bias", "b.1.weight", "b.1.bias"}) {
    at::Tensor parameter = torch::zeros_like(gradients.tensor(name)).requires_grad_();
    parameter.mutable_grad() = gradients.tensor(name);
    parameters.push_back({name, parameter});
  }
  parameters.push_back({"unused.weight", torch::zeros({2, 2}).requires_grad_()});
  for (const auto& [p, norms] : wanted_["norms"].items()) {
    SCOPED_TRACE(p);
    const double norm_type = p == "inf" ? std::numeric_limits<double>::infinity() : std::stod(p);
    std::map<std::string, double> got;
    for (const auto& norm : levin::optim::grad_norm(parameters, {.norm_type = norm_type})) {
      got[norm.name] = norm.tensor.item<double>();
    }
    expect_equal(got, norms, 1e-6);
  }
}

TEST_F(Measures, StatisticsOfTheCpuAreThoseOfPsutil) {
  levin::detail::CpuStats cpu(file("proc"));
  std::filesystem::copy_file(file("stat_later"), file("proc") / "stat",
                             std::filesystem::copy_options::overwrite_existing);
  expect_equal(by_name(cpu.read()), wanted_["cpu"], 0.0);
}

}  // namespace
}  // namespace measures_oracle
