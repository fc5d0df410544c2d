// Every layer of torch::nn, forward and backward, in training and evaluation, over dtypes.
#include "tests/graph/against_eager.h"
#include "tests/graph/layer_cases.h"

namespace {

using at::Tensor;
using levin::test::forward_and_backward;
using levin::test::labels_of;
using levin::test::Layer;
using levin::test::LayerCase;
using levin::test::Make;
using levin::test::Tensors;
using torch::kDouble;

class Layers : public testing::TestWithParam<LayerCase> {};

/// Empty, or why ATen cannot run it in this dtype.
std::string fault_in(const Make& make, at::ScalarType dtype, bool is_training) {
  torch::manual_seed(7);
  const Layer layer = make();
  layer.module->to(dtype);
  layer.module->train(is_training);
  Tensors inputs = layer.inputs();
  for (Tensor& input : inputs) {
    if (input.is_floating_point()) input = input.to(dtype);
  }
  try {
    forward_and_backward(layer, inputs, labels_of(inputs));
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST_P(Layers, EqualEager) {
  for (const at::ScalarType dtype : {torch::kFloat, kDouble, torch::kBFloat16}) {
    for (const bool is_training : {true, false}) {
      SCOPED_TRACE(c10::str(dtype, is_training ? ", training" : ", evaluation"));
      const std::string fault = fault_in(GetParam().make, dtype, is_training);
      if (!fault.empty()) {
        EXPECT_EQ(dtype, torch::kBFloat16) << fault;
        continue;
      }
      const Layer layer = GetParam().make();
      layer.module->to(dtype);
      layer.module->train(is_training);
      const auto inputs = [&] {
        Tensors drawn = layer.inputs();
        for (Tensor& input : drawn) {
          if (input.is_floating_point()) input = input.to(dtype);
        }
        return drawn;
      };
      const std::vector<bool> are_labels = labels_of(inputs());
      levin::test::Subject subject{
          .function =
              [&](const Tensors& in) { return forward_and_backward(layer, in, are_labels); },
          .inputs = inputs(),
          .other_inputs = inputs(),
          .state = levin::named_parameters(*layer.module),
          .allow_host_reads = GetParam().name == "CTCLoss"};  // a size depends on lengths
      for (const auto& buffer : layer.module->named_buffers()) {
        if (buffer.value().defined()) subject.state.push_back({buffer.key(), buffer.value()});
      }
      const auto module = levin::test::expect_equals_eager(subject);
      if (HasFailure()) {
        std::puts(levin::graph::to_text(module.graph()).c_str());
        return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Layers, testing::ValuesIn(levin::test::layer_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(LayersTable, IsLong) { EXPECT_GE(levin::test::layer_cases().size(), 130U); }

}  // namespace
