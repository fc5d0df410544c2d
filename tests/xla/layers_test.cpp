// Every layer of torch::nn on the device: forward and all gradients equal the CPU's, and no
// operator of theirs runs on the host.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "tests/graph/layer_cases.h"
#include "tests/xla/on_both_devices.h"

namespace {

using at::Tensor;
using levin::test::forward_and_backward;
using levin::test::labels_of;
using levin::test::Layer;
using levin::test::LayerCase;
using levin::test::Tensors;
using levin::test::xla_runtime;

/// Their random numbers are the device's own: in training only the sizes and finiteness are known.
constexpr std::array kRandomInTraining = {"RReLU",
                                          "Dropout",
                                          "DropoutInPlace",
                                          "Dropout2d",
                                          "Dropout3d",
                                          "AlphaDropout",
                                          "FeatureAlphaDropout",
                                          "LSTMDeep",
                                          "GRUDeep",
                                          "MultiheadAttention",
                                          "TransformerEncoderLayer",
                                          "TransformerDecoderLayer",
                                          "TransformerEncoder",
                                          "TransformerDecoder",
                                          "Transformer"};

/// What has no form on the device, and why.
constexpr std::array<std::pair<const char*, const char*>, 3> kOnHost = {{
    {"FractionalMaxPool2d", "where its windows lie is drawn at run time"},
    {"FractionalMaxPool3d", "where its windows lie is drawn at run time"},
    {"CTCLoss", "its sizes depend on the lengths, which are numbers of the host"},
}};

bool is_random(const std::string& name, bool is_training) {
  if (name.starts_with("FractionalMaxPool")) return true;
  return is_training && std::ranges::find(kRandomInTraining, name) != kRandomInTraining.end();
}

bool is_on_host(const std::string& name) {
  return std::ranges::any_of(kOnHost, [&](const auto& entry) { return name == entry.first; });
}

/// Of the greatest element: sums over its neighbours are rounded in another order.
double tolerance_of(at::ScalarType dtype) {
  if (dtype == at::kDouble) return 1e-11;
  return dtype == at::kFloat ? 2e-5 : 2e-2;
}

double distance(const Tensor& a, const Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

/// Floats in 16 bits are not held to the CPU's, whose errors are as large, but to what 64 bits
/// give: the device's error is the CPU's at most, but for a few roundings.
void expect_close(const Tensor& came, const Tensor& wanted, const Tensor& exact,
                  const std::string& what) {
  ASSERT_EQ(came.defined(), wanted.defined()) << what;
  if (!wanted.defined()) return;
  ASSERT_EQ(came.sizes(), wanted.sizes()) << what;
  ASSERT_EQ(came.scalar_type(), wanted.scalar_type()) << what;
  const Tensor there = came.detach().cpu();
  if (!wanted.is_floating_point()) {
    EXPECT_TRUE(there.equal(wanted)) << what << '\n' << there << "\nwanted\n" << wanted;
    return;
  }
  if (wanted.numel() == 0) return;
  const double scale = std::max(1.0, exact.abs().max().item<double>());
  const double allowed = tolerance_of(wanted.scalar_type()) * scale + distance(wanted, exact);
  EXPECT_LE(distance(there, exact), allowed) << what << '\n'
                                             << there.to(at::kDouble) << "\nwanted\n"
                                             << exact;
}

/// The same weights each time; in 64 bits those that the dtype can hold.
Layer layer_of(const LayerCase& of, at::ScalarType dtype, bool is_training,
               bool in_double = false) {
  torch::manual_seed(7);
  Layer layer = of.make();
  layer.module->to(dtype);
  if (in_double) layer.module->to(at::kDouble);
  layer.module->train(is_training);
  return layer;
}

struct Outcome {
  Tensors results;
  Tensors buffers;
};

Outcome outcome_of(const Layer& layer, const Tensors& inputs, const std::vector<bool>& are_labels) {
  Outcome outcome{.results = forward_and_backward(layer, inputs, are_labels), .buffers = {}};
  outcome.buffers = layer.module->buffers();
  return outcome;
}

Tensors in_double(const Tensors& inputs) {
  Tensors wide;
  for (const Tensor& input : inputs) {
    wide.push_back(input.is_floating_point() ? input.to(at::kDouble) : input);
  }
  return wide;
}

/// A layer in one dtype and mode.
struct LayerRun {
  std::string what;
  bool is_random = false;
  Outcome came, wanted, exact;
};

/// Nothing where ATen has no kernels for the dtype.
std::optional<LayerRun> run_of(const LayerCase& of, at::ScalarType dtype, bool is_training) {
  LayerRun run{.what = c10::str(dtype, is_training ? ", training: " : ", evaluation: "),
               .is_random = is_random(of.name, is_training)};
  const Layer here = layer_of(of, dtype, is_training);
  Tensors inputs = here.inputs();
  for (Tensor& input : inputs) {
    if (input.is_floating_point()) input = input.to(dtype);
  }
  const std::vector<bool> are_labels = labels_of(inputs);
  try {
    run.wanted = outcome_of(here, inputs, are_labels);
  } catch (const c10::Error& error) {
    EXPECT_EQ(dtype, at::kBFloat16) << error.what_without_backtrace();
    return std::nullopt;
  }
  run.exact = dtype == at::kBFloat16 ? outcome_of(layer_of(of, dtype, is_training, true),
                                                  in_double(inputs), are_labels)
                                     : run.wanted;
  const at::Device device = xla_runtime().device();
  const Layer there = layer_of(of, dtype, is_training);
  there.module->to(device);
  for (Tensor& input : inputs) input = input.to(device);
  run.came = outcome_of(there, inputs, are_labels);
  return run;
}

void expect_sound(const Tensor& came, const Tensor& wanted, const std::string& what) {
  ASSERT_EQ(came.defined(), wanted.defined()) << what;
  if (!came.defined()) return;
  EXPECT_EQ(came.sizes(), wanted.sizes()) << what;
  EXPECT_TRUE(came.cpu().isfinite().all().item<bool>()) << what;
}

void expect_equal(const LayerRun& run) {
  const auto& [what, is_random, came, wanted, exact] = run;
  ASSERT_EQ(came.results.size(), wanted.results.size()) << what;
  for (size_t i = 0; i < came.results.size(); ++i) {
    const std::string name = c10::str(what, "result ", i);
    if (is_random) {
      expect_sound(came.results[i], wanted.results[i], name);
    } else {
      expect_close(came.results[i], wanted.results[i], exact.results[i], name);
    }
  }
  for (size_t i = 0; i < came.buffers.size(); ++i) {
    expect_close(came.buffers[i], wanted.buffers[i], exact.buffers[i],
                 c10::str(what, "buffer ", i));
  }
}

bool runs_all() { return std::getenv("LEVIN_SOAK") != nullptr; }

/// modules_test.cpp trains each in float, so that 16 bits are left for here, or float where ATen has
/// no kernels for them.
std::vector<LayerRun> runs_of(const LayerCase& of, bool is_training) {
  std::vector<at::ScalarType> dtypes = {at::kBFloat16, at::kFloat};
  if (runs_all()) dtypes = {at::kFloat, at::kDouble, at::kBFloat16};
  std::vector<LayerRun> runs;
  for (const at::ScalarType dtype : dtypes) {
    if (auto run = run_of(of, dtype, is_training)) runs.push_back(*std::move(run));
    if (!runs.empty() && !runs_all()) break;
  }
  return runs;
}

/// Those in which other operators run.
std::vector<bool> modes_of(const LayerCase& of) {
  const bool has_modes = is_random(of.name, true) || !of.make().module->buffers().empty();
  return has_modes || runs_all() ? std::vector{true, false} : std::vector{true};
}

class LayersOnXla : public testing::TestWithParam<LayerCase> {};

TEST_P(LayersOnXla, EqualTheCpu) {
  // modules_test.cpp has others as deep, with and without what draws.
  if (GetParam().is_deep() && !runs_all()) GTEST_SKIP() << "set LEVIN_SOAK=1";
  const int64_t before = xla_runtime().report().host_fallbacks;
  std::vector<LayerRun> runs;
  for (const bool is_training : modes_of(GetParam())) {
    for (LayerRun& run : runs_of(GetParam(), is_training)) runs.push_back(std::move(run));
  }
  ASSERT_FALSE(runs.empty());
  xla_runtime().sync();  // all of them are one program: one compilation
  const int64_t fallbacks = xla_runtime().report().host_fallbacks - before;
  EXPECT_EQ(fallbacks > 0, is_on_host(GetParam().name)) << fallbacks << " operators on the host";
  for (const LayerRun& run : runs) expect_equal(run);
}

INSTANTIATE_TEST_SUITE_P(Table, LayersOnXla, testing::ValuesIn(levin::test::layer_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
