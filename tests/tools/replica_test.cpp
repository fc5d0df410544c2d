// A step recorded on the CPU, run by XLA's CPU plugin as each of several devices runs it.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <unordered_map>

#include "levin/models/gpt2.h"
#include "levin/xla/stablehlo/program.h"
#include "tests/support/error_of.h"
#include "tests/tools/step.h"
#include "tests/xla/plugins.h"
#include "tools/xla/xla_check.h"

namespace {

namespace pjrt = levin::xla::pjrt;
using levin::graph::Node;
using levin::graph::Opcode;
using levin::test::error_of;
using levin::test::TrainingStep;
using levin::tools::CheckedStep;
using levin::tools::replica_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Calls a lowered step with state as it is, each device with its part of the batch.
class ReplicaRun {
 public:
  ReplicaRun(const pjrt::Client& client, levin::graph::Graph graph, int64_t num_devices)
      : client_(client),
        num_devices_(num_devices),
        graph_(std::move(graph)),
        program_(levin::xla::lower(graph_, {.num_replicas = num_devices})) {}

  /// The new contents of the state, by name, of the last device.
  std::map<std::string, at::Tensor> operator()(const std::map<std::string, at::Tensor>& inputs,
                                               const std::map<std::string, at::Tensor>& state) {
    std::vector<pjrt::Buffer> buffers;
    for (int64_t device = 0; device < num_devices_; ++device) {
      for (const Node* node : program_.inputs) {
        const auto input = inputs.find(node->name());
        buffers.push_back(upload(input == inputs.end() ? state.at(node->name())
                                                       : input->second.chunk(num_devices_)[device],
                                 device));
      }
      add_numbers(buffers, device);
    }
    std::vector<const pjrt::Buffer*> arguments;
    for (const pjrt::Buffer& buffer : buffers) arguments.push_back(&buffer);
    std::vector<pjrt::Buffer> outputs;
    client_.compile(program_.text, {.num_replicas = num_devices_}).execute(arguments, outputs);
    std::map<std::string, at::Tensor> results;
    const size_t first = outputs.size() - program_.outputs.size();
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const Node* updates = program_.outputs[i].updates;
      if (updates != nullptr) results[updates->name()] = outputs[first + i].download();
    }
    return results;
  }

 private:
  pjrt::Buffer upload(const at::Tensor& tensor, int64_t device) {
    return client_.upload(tensor.detach().contiguous(), device, pjrt::HostMemory::kDuringCall);
  }

  void add_numbers(std::vector<pjrt::Buffer>& buffers, int64_t device) {
    const auto vector_of = [](const std::vector<levin::xla::RuntimeNumber>& numbers) {
      std::vector<double> values;
      for (const auto& number : numbers) {
        values.push_back(number.tensor == nullptr ? number.value
                                                  : number.tensor->tensor().item().toDouble());
      }
      return torch::tensor(values, torch::kDouble);
    };
    if (!program_.numbers.empty()) {
      buffers.push_back(upload(vector_of(program_.numbers).to(torch::kFloat), device));
    }
    if (!program_.wide_numbers.empty()) {
      buffers.push_back(upload(vector_of(program_.wide_numbers), device));
    }
    if (program_.draws_random_numbers) {
      buffers.push_back(upload(torch::tensor({1, 2}).to(at::kUInt32), device));
    }
  }

  const pjrt::Client& client_;
  int64_t num_devices_;
  levin::graph::Graph graph_;
  levin::xla::Program program_;
};

class Replicas : public levin::test::OnCpuDevices {
 protected:
  /// On each number of devices, the parameters after a step of all parts of the batch are those
  /// after a step on the whole of it. Returns the recorded step's operators.
  template <class Net>
  std::string expect_equal_to_the_whole(const std::function<Net()>& make, const at::Tensor& x,
                                        const at::Tensor& y, const levin::OptimizerConfig& config,
                                        double tolerance = 1e-5) {
    std::string text;
    for (const int64_t count : {1, 2, 4, 8}) {
      torch::manual_seed(3);
      Net net = make();
      const at::Tensor part_x = x.chunk(count)[0], part_y = y.chunk(count)[0];
      TrainingStep<Net> step(net, config, part_x, part_y, /*max_norm=*/0.5);
      const auto recorded = step.traced(part_x, part_y);
      text = levin::graph::to_text(recorded.graph());
      std::map<std::string, at::Tensor> state;
      for (const levin::NamedTensor& one : recorded.state()) {
        state[one.name] = one.tensor.detach().clone();
      }
      ReplicaRun run(device_count(count), replica_of(recorded.graph(), count), count);
      const auto inputs = named_inputs(recorded.graph(), x, y);
      const auto results = run(inputs, state);
      step(x, y);
      for (const levin::NamedTensor& one : step.parameters) {
        const auto found = results.find(one.name);
        if (found == results.end()) {
          ADD_FAILURE() << one.name << " is not updated";
          continue;
        }
        EXPECT_LT(difference(found->second, one.tensor), tolerance)
            << one.name << " on " << count << " devices";
        EXPECT_GT(difference(state.at(one.name), one.tensor), 0.0) << one.name;
      }
    }
    return text;
  }

 private:
  const pjrt::Client& device_count(int64_t count) { return devices(count); }

  static double difference(const at::Tensor& left, const at::Tensor& right) {
    return (left - right).abs().max().item<double>();
  }

  static std::map<std::string, at::Tensor> named_inputs(const levin::graph::Graph& graph,
                                                        const at::Tensor& x, const at::Tensor& y) {
    const auto inputs = graph.find_nodes(Opcode::kPlaceholder);
    return {{inputs.at(0)->name(), x}, {inputs.at(1)->name(), y}};
  }
};

TEST_F(Replicas, OfAnMlpEqualTheWholeBatch) {
  using torch::nn::Linear;
  const auto make = [] {
    return torch::nn::Sequential(Linear(32, 64), torch::nn::ReLU(), Linear(64, 8));
  };
  const std::string text = expect_equal_to_the_whole<torch::nn::Sequential>(
      make, torch::randn({16, 32}), torch::randint(8, {16}),
      levin::optim::sgd({.lr = 0.1, .momentum = 0.9}));
  EXPECT_THAT(text, HasSubstr("aten::_foreach_norm"));
}

TEST_F(Replicas, OfAConvolutionalNetEqualTheWholeBatch) {
  using torch::nn::Conv2d;
  const auto make = [] {
    return torch::nn::Sequential(Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)),
                                 torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                                 Conv2d(torch::nn::Conv2dOptions(4, 8, 3).stride(2)),
                                 torch::nn::GroupNorm(2, 8), torch::nn::GELU(),
                                 torch::nn::Flatten(), torch::nn::Linear(72, 5));
  };
  const std::string text = expect_equal_to_the_whole<torch::nn::Sequential>(
      make, torch::randn({16, 1, 14, 14}), torch::randint(5, {16}), levin::optim::sgd({.lr = 0.1}));
  EXPECT_THAT(text, HasSubstr("aten::convolution_backward"));
}

/// Attention without dropout is one operator on the CPU, and several on xla.
TEST_F(Replicas, OfATransformerEqualTheWholeBatch) {
  const auto make = [] {
    return levin::models::GPT2(levin::models::GPT2Config{.vocab_size = 20,
                                                         .n_positions = 12,
                                                         .n_embd = 16,
                                                         .n_layer = 2,
                                                         .n_head = 2,
                                                         .resid_pdrop = 0.0,
                                                         .embd_pdrop = 0.0,
                                                         .attn_pdrop = 0.0});
  };
  const std::string text = expect_equal_to_the_whole<levin::models::GPT2>(
      make, torch::randint(20, {8, 12}), torch::randint(20, {96}), levin::optim::sgd({.lr = 0.1}));
  EXPECT_THAT(text, HasSubstr("aten::_scaled_dot_product_flash_attention_for_cpu_backward"));
}

struct MaskedAttentionImpl : torch::nn::Module {
  torch::nn::Linear in{nullptr}, out{nullptr};

  MaskedAttentionImpl() {
    in = register_module("in", torch::nn::Linear(8, 24));
    out = register_module("out", torch::nn::Linear(8, 5));
  }
  at::Tensor forward(const at::Tensor& x) {  // [B, 6, 8] -> [B, 6, 5]
    const auto heads = in->forward(x).view({x.size(0), 6, 3, 2, 4}).permute({2, 0, 3, 1, 4});
    const auto y = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], mask, 0.0, false,
                                                    /*scale=*/0.3);
    return out->forward(y.transpose(1, 2).reshape({x.size(0), 6, 8}));
  }
  at::Tensor mask = torch::linspace(-1, 1, 36).view({6, 6});
};
TORCH_MODULE(MaskedAttention);

TEST_F(Replicas, OfAttentionUnderAMaskEqualTheWholeBatch) {
  const std::string text = expect_equal_to_the_whole<MaskedAttention>(
      [] { return MaskedAttention(); }, torch::randn({8, 6, 8}), torch::randint(5, {48}),
      levin::optim::sgd({.lr = 0.1}));
  EXPECT_THAT(text, HasSubstr("aten::_scaled_dot_product_flash_attention_for_cpu"));
}

struct NoisyImpl : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(6, 4));
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor noise = torch::randn_like(x) * 0 + torch::rand({6}) * torch::zeros({6});
    const at::Tensor none = torch::full({6}, 3.0) - torch::full_like(noise, 2.0);
    const at::Tensor weights = at::_safe_softmax(layer->forward((x + noise) * none), -1);
    return weights + torch::ones_like(weights) - x.new_ones({4}) + x.new_full({4}, 2.0);
  }
};
TORCH_MODULE(Noisy);

TEST_F(Replicas, HaveFactoriesAndSafeSoftmax) {
  const std::string text =
      expect_equal_to_the_whole<Noisy>([] { return Noisy(); }, torch::randn({8, 6}),
                                       torch::randint(4, {8}), levin::optim::sgd({.lr = 0.5}));
  EXPECT_THAT(text, HasSubstr("aten::_safe_softmax"));
  EXPECT_THAT(text, HasSubstr("aten::randn_like"));
}

TEST_F(Replicas, AreCheckedByTheCompiler) {
  for (const int64_t count : {1, 2, 4, 8}) {
    CheckedStep checked{.topology = "cpu", .device_kind = "cpu", .num_cores = count};
    levin::tools::check_step(
        levin::test::mlp_step(0.5).graph(),
        [&](std::string_view text, const pjrt::CompileOptions& options) {
          return devices(count).compile(text, options);
        },
        checked);
    EXPECT_TRUE(checked.fits());
    // Parameters, as many of both moments, counts, and a batch of 16.
    EXPECT_GE(checked.memory.arguments, 3 * 2632 * 4 + 16 * 32 * 4 + 16 * 8);
    EXPECT_GT(checked.total_bytes(), checked.memory.arguments);
    if (count == 1) {
      EXPECT_TRUE(checked.collectives.empty());
      continue;
    }
    ASSERT_EQ(checked.collectives.size(), 1U);
    EXPECT_EQ(checked.collectives[0].kind, "all-reduce");
    EXPECT_EQ(checked.collectives[0].bytes, 2632 * 4);
  }
}

TEST(Replica, NeedsGradientsFromTheCpu) {
  levin::graph::Graph none = levin::graph::parse("%x = placeholder[\"x\"] : f32[4]\nreturn %x\n");
  EXPECT_THAT(error_of([&] { replica_of(none, 2); }),
              StartsWith("tools.xla: the step leaves no gradients for 2 devices to"));
  EXPECT_EQ(replica_of(none, 1).outputs().size(), 1U);
  levin::graph::ValueType type = none.outputs()[0]->type();
  type.device = at::Device(at::kXLA, 0);
  none.outputs()[0]->set_type(type);
  EXPECT_THAT(error_of([&] { replica_of(none, 1); }),
              StartsWith("tools.xla: the step was recorded on xla:0, wanted the CPU"));
}

TEST(Replica, OfAGroupOfBatchesExchangesWhatTheGroupHas) {
  const auto graph = replica_of(levin::test::step_with_old_gradient(/*adds=*/true), 4);
  const auto sums = graph.find_nodes("levin::all_reduce_");
  ASSERT_EQ(sums.size(), 1U);
  EXPECT_EQ(sums[0]->input(0)->node().target(), "aten::add_.Tensor");
}

TEST(Lowering, NamesANormWithoutForm) {
  const levin::graph::Graph graph = levin::graph::parse(
      "%x = placeholder[\"x\"] : f32[4]\n"
      "%norms = aten::_foreach_norm.Scalar([%x], 0) : f32[]\nreturn %norms\n");
  EXPECT_THAT(error_of([&] { levin::xla::lower(graph); }),
              StartsWith("xla.lowering: aten::_foreach_norm.Scalar of order 0 has no form"));
}

}  // namespace
