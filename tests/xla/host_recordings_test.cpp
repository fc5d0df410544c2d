// Every layer of torch::nn recorded on the CPU, where LibTorch calls other operators than on the
// device: its graph has a form in StableHLO, and a run of that gives what the CPU gives. `levin xla
// check` compiles such graphs.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "levin/graph/record/trace.h"
#include "levin/xla/pjrt/executable_cache.h"
#include "levin/xla/stablehlo/program_table.h"
#include "tests/graph/layer_cases.h"
#include "tests/xla/plugins.h"

namespace {

using at::Tensor;
using levin::graph::Graph;
using levin::graph::Node;
using levin::test::forward_and_backward;
using levin::test::labels_of;
using levin::test::Layer;
using levin::test::LayerCase;
using levin::test::Tensors;
using levin::xla::Program;
using levin::xla::RuntimeNumber;

/// What has no form, and why.
constexpr std::array<const char*, 3> kWithoutForm = {
    "FractionalMaxPool2d", "FractionalMaxPool3d",  // where their windows lie is drawn at run time
    "CTCLoss"};                                    // sizes depend on numbers of the host

/// With random numbers, which are the device's own: sizes alone are known.
bool draws(const Program& program) { return program.draws_random_numbers; }

/// In training the deepest draw, so that only sizes would be compared: with LEVIN_SOAK=1.
bool runs(const LayerCase& of, bool is_training) {
  return !is_training || !of.is_deep() || of.name.ends_with("Layer") ||
         std::getenv("LEVIN_SOAK") != nullptr;
}

class HostRecordings : public levin::test::OnCpuDevices,
                       public testing::WithParamInterface<LayerCase> {
 protected:
  static Tensor tensor_of(const Graph& graph, const Tensors& inputs, const Node& node) {
    if (node.opcode() == levin::graph::Opcode::kGetAttr) return node.tensor();
    const auto placeholders = graph.find_nodes(levin::graph::Opcode::kPlaceholder);
    const auto place = std::ranges::find(placeholders, &node);
    return inputs[static_cast<size_t>(place - placeholders.begin())];
  }

  Tensors run(const Graph& graph, const Program& program, const Tensors& inputs) {
    std::vector<levin::xla::pjrt::Buffer> given;
    for (const Node* node : program.inputs) {
      given.push_back(device().upload(tensor_of(graph, inputs, *node).detach().contiguous(), 0));
    }
    for (const auto& [numbers, dtype] :
         {std::pair(&program.numbers, at::kFloat), std::pair(&program.wide_numbers, at::kDouble)}) {
      std::vector<double> values;
      for (const RuntimeNumber& number : *numbers) {
        values.push_back(number.tensor == nullptr
                             ? number.value
                             : tensor_of(graph, inputs, *number.tensor).item().toDouble());
      }
      if (!values.empty()) given.push_back(device().upload(at::tensor(values).to(dtype), 0));
    }
    if (program.draws_random_numbers) {
      given.push_back(device().upload(torch::zeros({2}, at::kUInt32), 0));
    }
    std::vector<const levin::xla::pjrt::Buffer*> arguments;
    for (const auto& buffer : given) arguments.push_back(&buffer);
    static levin::xla::pjrt::ExecutableCache cache;
    const auto outputs = levin::test::run(cache.compile(device(), program.text), arguments);
    Tensors results(graph.outputs().size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (program.outputs[i].updates == nullptr) {
        results[program.outputs[i].index] = outputs[i].download();
      }
    }
    return results;
  }

  /// The same code has the program that it had.
  static void expect_found(const Graph& graph, const Program& program, const Graph& again) {
    const auto whole = [](const Node&) { return int64_t{-1}; };
    levin::xla::ProgramTable table;
    table.find(graph, whole);
    table.add({.program = program});
    const levin::xla::KnownProgram* found = table.find(again, whole);
    ASSERT_NE(found, nullptr);
    const Program lowered = levin::xla::lower(again);
    EXPECT_EQ(found->program.text, lowered.text);
    EXPECT_EQ(found->program.inputs, lowered.inputs);
    ASSERT_EQ(found->program.numbers.size(), lowered.numbers.size());
    for (size_t i = 0; i < lowered.numbers.size(); ++i) {
      EXPECT_EQ(found->program.numbers[i].value, lowered.numbers[i].value);
      EXPECT_EQ(found->program.numbers[i].tensor, lowered.numbers[i].tensor);
    }
  }

  void expect_equal(const Layer& layer, bool is_training) {
    layer.module->train(is_training);
    const Tensors inputs = layer.inputs();
    const std::vector<bool> are_labels = labels_of(inputs);
    // As `levin xla check` records: an LSTM is else one operator of oneDNN's.
    at::globalContext().setUserEnabledMkldnn(false);
    const auto record = [&] {
      return levin::detail::trace(
          [&](const Tensors& in) { return forward_and_backward(layer, in, are_labels); }, inputs,
          {});
    };
    const auto module = record();
    const auto again = record();
    at::globalContext().setUserEnabledMkldnn(true);
    const Graph& graph = module.graph();
    const Program program = levin::xla::lower(graph);
    expect_found(graph, program, again.graph());
    const Tensors wanted = forward_and_backward(layer, inputs, are_labels);
    const Tensors came = run(graph, program, inputs);
    ASSERT_EQ(came.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!came[i].defined()) continue;
      ASSERT_EQ(came[i].sizes(), wanted[i].sizes()) << "result " << i;
      const auto off = (came[i].to(at::kDouble) - wanted[i].to(at::kDouble)).abs();
      if (!draws(program) && off.numel() > 0) {
        EXPECT_LE(off.max().item<double>(),
                  2e-5 * std::max(1.0, wanted[i].to(at::kDouble).abs().max().item<double>()))
            << "result " << i << (is_training ? ", training" : ", evaluation");
      }
    }
  }
};

TEST_P(HostRecordings, GiveWhatTheCpuGives) {
  if (std::ranges::count(kWithoutForm, GetParam().name) > 0) GTEST_SKIP() << "has no form";
  for (const bool is_training : {true, false}) {
    if (!runs(GetParam(), is_training)) continue;
    torch::manual_seed(7);
    expect_equal(GetParam().make(), is_training);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, HostRecordings, testing::ValuesIn(levin::test::layer_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
