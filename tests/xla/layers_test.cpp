// Every layer of torch::nn on the device: forward and all gradients equal the CPU's, and no
// operator of theirs runs on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/graph/layer_cases.h"
#include "tests/xla/on_both_devices.h"

namespace {

using at::Tensor;
using levin::test::forward_and_backward;
using levin::test::labels_of;
using levin::test::Layer;
using levin::test::LayerCase;
using levin::test::Tensors;

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

/// One for all tests: a process has one, and a program that was compiled once is found again.
levin::xla::Runtime& runtime() { return levin::test::xla_runtime(); }

/// Of the greatest element: sums over its neighbours are rounded in another order.
double tolerance_of(at::ScalarType dtype) {
  if (dtype == at::kDouble) return 1e-11;
  return dtype == at::kFloat ? 2e-5 : 4e-2;
}

void expect_close(const Tensor& came, const Tensor& wanted, const std::string& what) {
  ASSERT_EQ(came.defined(), wanted.defined()) << what;
  if (!wanted.defined()) return;
  ASSERT_EQ(came.sizes(), wanted.sizes()) << what;
  ASSERT_EQ(came.scalar_type(), wanted.scalar_type()) << what;
  const Tensor there = came.detach().cpu();
  if (!wanted.is_floating_point()) {
    EXPECT_TRUE(there.equal(wanted)) << what << '\n' << there << "\nwanted\n" << wanted;
    return;
  }
  const Tensor a = there.to(at::kDouble);
  const Tensor b = wanted.detach().to(at::kDouble);
  if (b.numel() == 0) return;
  const double scale = std::max(1.0, b.abs().max().item<double>());
  const double most = (a - b).abs().max().item<double>();
  EXPECT_LE(most, tolerance_of(wanted.scalar_type()) * scale) << what << '\n'
                                                              << a << "\nwanted\n"
                                                              << b;
}

/// The same weights each time.
Layer made(const LayerCase& of, at::ScalarType dtype, bool is_training) {
  torch::manual_seed(7);
  Layer layer = of.make();
  layer.module->to(dtype);
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

class LayersOnXla : public testing::TestWithParam<LayerCase> {
 protected:
  static void compare(const LayerCase& of, at::ScalarType dtype, bool is_training) {
    const Layer here = made(of, dtype, is_training);
    Tensors inputs = here.inputs();
    for (Tensor& input : inputs) {
      if (input.is_floating_point()) input = input.to(dtype);
    }
    const std::vector<bool> are_labels = labels_of(inputs);
    Outcome wanted;
    try {
      wanted = outcome_of(here, inputs, are_labels);
    } catch (const c10::Error& error) {
      EXPECT_EQ(dtype, at::kBFloat16) << error.what_without_backtrace();
      return;
    }
    Tensors there;
    for (const Tensor& input : inputs) there.push_back(input.to(runtime().device()));
    const Layer layer = made(of, dtype, is_training);
    layer.module->to(runtime().device());
    const int64_t before = runtime().report().host_fallbacks;
    const Outcome came = outcome_of(layer, there, are_labels);
    runtime().sync();
    const int64_t fallbacks = runtime().report().host_fallbacks - before;
    EXPECT_TRUE(is_on_host(of.name) || fallbacks == 0) << fallbacks << " fallbacks";
    expect_same(came, wanted, is_random(of.name, is_training));
  }

  static void expect_same(const Outcome& came, const Outcome& wanted, bool is_random) {
    ASSERT_EQ(came.results.size(), wanted.results.size());
    for (size_t i = 0; i < came.results.size(); ++i) {
      const std::string what = c10::str("result ", i);
      if (!is_random) {
        expect_close(came.results[i], wanted.results[i], what);
        continue;
      }
      ASSERT_EQ(came.results[i].defined(), wanted.results[i].defined()) << what;
      if (!came.results[i].defined()) continue;
      EXPECT_EQ(came.results[i].sizes(), wanted.results[i].sizes()) << what;
      EXPECT_TRUE(came.results[i].cpu().isfinite().all().item<bool>()) << what;
    }
    for (size_t i = 0; i < came.buffers.size(); ++i) {
      expect_close(came.buffers[i], wanted.buffers[i], c10::str("buffer ", i));
    }
  }
};

TEST_P(LayersOnXla, EqualTheCpu) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const bool is_training : {true, false}) {
      SCOPED_TRACE(c10::str(dtype, is_training ? ", training" : ", evaluation"));
      ASSERT_NO_THROW(compare(GetParam(), dtype, is_training));
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, LayersOnXla, testing::ValuesIn(levin::test::layer_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
